"""How is one request made over a unix socket, so that every wait for the answer ends? Hands: one connection each.

Two things end a wait: its limit, and `cut` from another thread. A limit holds for the whole of an answer and not for
each read, or a server that sends one byte every few seconds would never be late. That is why the socket itself counts
the time that is left, below what the standard library reads through.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import IO, Any

from tpuagent.errors import EngineUnavailable
from tpuagent.values import dataclass

_CHUNK = 65536
_FULL_BACKLOG_WAIT_S = 0.05
_CAUSES = (  # of an answer that is none, the first that fits
    (TimeoutError, "it does not answer in time"),
    (http.client.IncompleteRead, "its answer breaks off"),
    (http.client.RemoteDisconnected, "it hangs up without an answer"),
    (ConnectionError, "its answer breaks off"),
    (http.client.HTTPException, "what answers there does not speak HTTP"),
)


@dataclass(frozen=True)
class Limits:
    """Seconds, and bytes for an answer that is read as a whole.

    `connect_s` is for the connection, `answer_s` from the request to the end of an answer. What takes as long as it
    takes has a limit for silence instead: `stall_s` when the engine tells of its progress, and `load_s` when it says
    nothing before it is through with an archive, as Podman does.
    """

    connect_s: float = 5.0
    answer_s: float = 30.0
    stall_s: float = 120.0
    load_s: float = 900.0
    size: int = 16 * 1024 * 1024


@dataclass(frozen=True)
class Request:
    """What is asked, and how many seconds are waited: in all, for the head of the answer, and for each part after it.

    None: as many as it takes.
    """

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | IO[bytes] | None = None
    total_s: float | None = None
    head_s: float | None = None
    silence_s: float | None = None


class Exchange:
    """One request and its answer. Whoever makes it closes it; any other thread may `cut` it."""

    def __init__(self, place: str, limits: Limits) -> None:
        self._place = place
        self._limits = limits
        self._cut = threading.Event()
        self._socket = _Socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._connection = http.client.HTTPConnection("localhost", blocksize=_CHUNK)
        self._head: http.client.HTTPResponse | None = None

    @property
    def head(self) -> http.client.HTTPResponse:
        """The head of the answer, after `ask`."""
        if self._head is None:
            raise RuntimeError("nothing has been asked")
        return self._head

    def cut(self) -> None:
        """Let whoever waits for it go on at once, with EngineUnavailable. From any thread, at any time."""
        self._cut.set()
        with contextlib.suppress(OSError):  # it may not be connected yet, or no longer
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the connection back. By the thread that reads."""
        if self._head:
            self._head.close()
        self._connection.close()
        self._socket.close()

    def ask(self, request: Request) -> None:
        """Send the request and have the head of the answer, whatever its status. Raises EngineUnavailable."""
        with self._faults(f"{request.method} {request.path.partition('?')[0]}"):
            self._connect()
            self._socket.allow(request.total_s, request.head_s)
            self._connection.sock = self._socket
            # A server that refuses while it is sent a body says why, and reads no more of it.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                headers = {"Connection": "close", **dict(request.headers)}
                self._connection.request(request.method, request.path, request.body, headers)
            if request.total_s is None:
                self._socket.allow(request.head_s, None)
            self._head = self._connection.getresponse()
            if request.total_s is None:
                self._socket.allow(None, request.silence_s)

    def expect(self, limit_s: float | None) -> None:
        """From now on, wait for so many seconds in all: whoever reads says it anew after each part that is whole."""
        self._socket.allow(limit_s, None)

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes, to its true end. Raises EngineUnavailable when it has another one."""
        left = None if self.head.chunked else self.head.length
        while left is None or left > 0:
            with self._faults("read its answer"):
                chunk = self.head.read1(_CHUNK if left is None else min(left, _CHUNK))
                if not chunk and left:  # not every version of Python notices it by itself
                    raise http.client.IncompleteRead(b"", left)
            if not chunk:
                return
            left = None if left is None else left - len(chunk)
            yield chunk

    def whole(self) -> bytes:
        """The whole body. Raises EngineUnavailable."""
        body = bytearray()
        for chunk in self.chunks():
            body += chunk
            if len(body) > self._limits.size:
                raise self._unavailable(f"its answer is longer than {self._limits.size} bytes")
        return bytes(body)

    def _connect(self) -> None:
        self._socket.settimeout(self._limits.connect_s)
        end = time.monotonic() + self._limits.connect_s
        while not self._cut.is_set():
            try:
                self._socket.connect(self._place)
                break
            except BlockingIOError:  # too many wait already to be heard, and no event tells when it is less
                if time.monotonic() >= end:
                    raise TimeoutError from None
                self._cut.wait(_FULL_BACKLOG_WAIT_S)
        if self._cut.is_set():  # before there was a connection to shut down
            raise ConnectionAbortedError

    @contextlib.contextmanager
    def _faults(self, doing: str) -> Iterator[None]:
        """Whatever goes wrong with a connection is one kind of fault. One that was cut has no other reason."""
        try:
            yield
        except (OSError, http.client.HTTPException) as fault:
            if self._cut.is_set():
                raise self._unavailable("it was interrupted") from None
            raise self._unavailable(_cause(fault, self._place, doing)) from None
        if self._cut.is_set():  # a body without a length ends when it is cut
            raise self._unavailable("it was interrupted")

    def _unavailable(self, why: str) -> EngineUnavailable:
        return unavailable(self._place, why)


def unavailable(place: str, why: str) -> EngineUnavailable:
    """The fault of an engine that does not answer as one."""
    return EngineUnavailable(f"reach the container engine at {place}", why)


class _Socket(socket.socket):
    """A socket that counts the time which is left of the limits for a whole exchange."""

    _end: float | None = None
    _silence_s: float | None = None

    def allow(self, total_s: float | None, silence_s: float | None) -> None:
        """From now on, so many seconds in all and so many for each wait."""
        self._end = None if total_s is None else time.monotonic() + total_s
        self._silence_s = silence_s

    def recv_into(self, *arguments: Any) -> int:
        self._allow_one()
        return super().recv_into(*arguments)

    def sendall(self, *arguments: Any) -> None:
        self._allow_one()
        super().sendall(*arguments)

    def _allow_one(self) -> None:
        left_s = None if self._end is None else self._end - time.monotonic()
        if left_s is not None and left_s <= 0:
            raise TimeoutError
        limits = [limit for limit in (left_s, self._silence_s) if limit is not None]
        self.settimeout(min(limits) if limits else None)


def _cause(fault: BaseException, place: str, doing: str) -> str:
    """Why there is no answer, in few words, with what to do about it."""
    unit = "podman.socket" if "podman" in place else "docker"
    code = fault.errno if isinstance(fault, OSError) else None
    if code == errno.ENOENT:
        return f"there is no such socket; install an engine, or start it with: systemctl start {unit} (ENOENT)"
    if code == errno.ECONNREFUSED:
        return f"nobody listens on it; start the engine with: systemctl start {unit} (ECONNREFUSED)"
    if code in {errno.EACCES, errno.EPERM}:
        return f"permission denied; ask as root ({errno.errorcode[code]})"
    for kind, words in _CAUSES:
        if isinstance(fault, kind):
            return f"{words} ({doing}); look at its log with: journalctl -u {unit.removesuffix('.socket')}"
    return f"{os.strerror(code).lower()} ({errno.errorcode.get(code, code)})" if code else str(fault)
