"""What do the pieces of an engine's stream mean? Bytes become documents, or what a container has written. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

_LONGEST_LINE = 1024 * 1024
_HEADER = 8
_STREAMS = {0: "stdin", 1: "stdout", 2: "stderr"}

Piece = tuple[str, bytes]  # "stdout" or "stderr", and what came over it


def parse_documents(chunks: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream, one on each line, each as soon as it is whole.

    Raises ValueError at what is none. The last one needs no end of line: Podman's has none.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield from _document(line)
        if len(rest) > _LONGEST_LINE:
            raise ValueError(f"a line is longer than {_LONGEST_LINE} bytes")
    yield from _document(rest)


def parse_frames(chunks: Iterable[bytes]) -> Iterator[Piece]:
    """What a container without a terminal has written, each piece with the stream that it was written to.

    Each frame is a byte for the stream, three zero bytes, four bytes for the length, and so many bytes; a long frame is
    handed on in parts as they come. Raises ValueError when it is something else, or ends within a frame.
    """
    rest = b""
    name, left = "", 0
    for chunk in chunks:
        rest += chunk
        while rest and (left or len(rest) >= _HEADER):
            if not left:
                name, left = _header(rest[:_HEADER])
                rest = rest[_HEADER:]
            piece, rest = rest[:left], rest[left:]
            left -= len(piece)
            if piece:
                yield name, piece
    if rest or left:
        raise ValueError("the log ends within a frame")


def parse_terminal(chunks: Iterable[bytes]) -> Iterator[Piece]:
    """What a container with a terminal has written: all of it comes as it was, over one stream."""
    for chunk in chunks:
        yield "stdout", chunk


def _document(line: bytes) -> Iterator[dict[str, Any]]:
    if line.strip():
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("it is JSON, and no object")
        yield document


def _header(header: bytes) -> tuple[str, int]:
    if header[0] not in _STREAMS or any(header[1:4]):
        raise ValueError("the log has no frames")
    return _STREAMS[header[0]], int.from_bytes(header[4:], "big")
