"""Is a stream understood however it is cut into pieces, and what is none never taken for one?"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.containers.streams import parse_documents, parse_frames, parse_terminal

documents = st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), max_size=5)
pieces = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1, max_size=40)), max_size=6)


def _cut(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    for size in sizes:
        yield data[:size]
        data = data[size:]
    yield data


def _framed(stream: str, content: bytes) -> bytes:
    return bytes([{"stdout": 1, "stderr": 2}[stream], 0, 0, 0]) + len(content).to_bytes(4, "big") + content


@given(documents, st.lists(st.integers(0, 30), max_size=8), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_documents_are_the_same_in_whatever_pieces_they_come(
    sent: list[object], sizes: list[int], end: bytes, last: bool
) -> None:
    data = end.join(json.dumps(one).encode() for one in sent) + (end if last else b"")
    assert list(parse_documents(_cut(data, sizes))) == sent


def test_a_document_is_there_as_soon_as_its_line_has_ended() -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"a": 1}\n{"b"'
        raise AssertionError("more was read than was needed")

    assert next(parse_documents(chunks())) == {"a": 1}


@given(st.binary(max_size=60))
def test_what_is_no_document_is_a_value_error_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(isinstance(one, dict) for one in parse_documents([data]))


@pytest.mark.parametrize("data", [b"[1]\n", b"3\n", b'{"half": ', b"<html>\n", b"\xff\n", b"{" * 2_000_000])
def test_these_are_no_documents(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        list(parse_documents([data]))


@given(pieces, st.lists(st.integers(0, 30), max_size=8))
def test_what_a_container_wrote_is_the_same_in_whatever_pieces_it_comes(
    written: list[tuple[str, bytes]], sizes: list[int]
) -> None:
    data = b"".join(_framed(*one) for one in written)
    for stream in ("stdout", "stderr"):
        read = b"".join(content for name, content in parse_frames(_cut(data, sizes)) if name == stream)
        assert read == b"".join(content for name, content in written if name == stream)


@given(st.binary(max_size=60))
def test_what_has_no_frames_is_a_value_error_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        list(parse_frames([data]))


@pytest.mark.parametrize("data", [b"plain text\n", _framed("stdout", b"whole")[:-1], _framed("stderr", b"x")[:5]])
def test_these_have_no_whole_frames(data: bytes) -> None:
    with pytest.raises(ValueError, match="log"):
        list(parse_frames([data]))


def test_a_long_frame_is_handed_on_as_it_comes() -> None:
    frame = _framed("stdout", b"x" * 100)
    assert list(parse_frames([frame[:20], frame[20:]])) == [("stdout", b"x" * 12), ("stdout", b"x" * 88)]


def test_an_empty_frame_is_nothing() -> None:
    assert list(parse_frames([_framed("stdout", b""), _framed("stderr", b"x")])) == [("stderr", b"x")]


def test_a_terminal_is_handed_on_as_it_is() -> None:
    assert list(parse_terminal([b"\x01\x00\x00\x00", b"any"])) == [("stdout", b"\x01\x00\x00\x00"), ("stdout", b"any")]
