"""How does the simulated engine speak HTTP? Its server, its way of answering, and its faults when asked."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.fakes.engine_state import Refusal

if TYPE_CHECKING:
    from tests.fakes.engine import FakeEngine

POLL_S = 0.02  # for clients that hang up, of which no event tells


@dataclass(frozen=True)
class Seen:
    """A request that has come. `path` is without version and query; `at` is of time.monotonic()."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    at: float

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class Server(ThreadingMixIn, UnixStreamServer):
    """Listens on a socket. `cut` ends every connection, as a process does that ends."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, fake: FakeEngine, path: str, handler: type[Speaker]) -> None:
        self.fake = fake
        self.open: set[socket.socket] = set()
        super().__init__(path, handler)

    def cut(self) -> None:
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the play."""


class Speaker(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def answer(self, path: str, version: tuple[int, int] | None) -> None:
        """Answer a request. Raises Refusal."""
        raise NotImplementedError

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def version_string(self) -> str:
        return self.server.fake.state.words.server

    def log_message(self, *_: object) -> None:
        """Not on the tests' terminal."""

    def _serve(self) -> None:
        split = urlsplit(self.path)
        versioned = re.match(r"/v([0-9]+)\.([0-9]+)(/.*)", split.path)
        path = unquote(versioned[3] if versioned else split.path)
        self.query = {name: values[-1] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        headers = {name.lower(): text for name, text in self.headers.items()}
        if fault := self.server.fake.note(Seen(self.command, path, self.query, headers, time.monotonic())):
            self._go_wrong(fault)
            return
        try:
            self.answer(path, (int(versioned[1]), int(versioned[2])) if versioned else None)
        except Refusal as refusal:
            self._refuse(refusal.args)

    # Answering ----------------------------------------------------------------------------------------------------

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _refuse(self, refused: tuple[Any, ...]) -> None:
        self.json(refused[0], self.server.fake.state.words.document((refused[0], refused[1])))

    def json(self, status: int, document: Any) -> None:
        self.send(status, json.dumps(document).encode() + b"\n", "application/json")

    def send(self, status: int, body: bytes = b"", kind: str = "") -> None:
        self._head(status, {"Content-Type": kind, "Content-Length": str(len(body))} if kind else {})
        self.wfile.write(body)

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Api-Version": self.server.fake.state.words.api, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    @contextlib.contextmanager
    def stream(self, kind: str = "application/json") -> Iterator[Callable[[bytes], None]]:
        """An answer in chunks; one that is not ended here breaks off."""
        self._head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked"})

        def write(data: bytes) -> None:
            self.server.fake.hold()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

        yield write
        self.close_connection = True
        if self.server.fake.serving:
            self.wfile.write(b"0\r\n\r\n")

    def over(self) -> bool:
        return not self.server.fake.serving or self._hung_up()

    def _hung_up(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    # As it should not be ------------------------------------------------------------------------------------------

    def _go_wrong(self, fault: str) -> None:
        self.close_connection = True
        if fault.isdecimal():
            self._refuse((int(fault), "something went wrong"))
        else:
            getattr(self, "_fault_" + fault.replace("-", "_"))()

    def _fault_html(self) -> None:
        self.send(502, b"<html><body>Bad Gateway</body></html>", "text/html")

    def _fault_html_ok(self) -> None:
        self.send(200, b"<html><body>Please sign in</body></html>", "text/html")

    def _fault_half(self) -> None:
        self.send(200, b'{"Id": "abc', "application/json")

    def _fault_short(self) -> None:
        self._head(200, {"Content-Type": "application/json", "Content-Length": "1000"})
        self.wfile.write(b'{"Id": ')

    def _fault_broken_stream(self) -> None:
        self._head(200, {"Content-Type": "application/json", "Transfer-Encoding": "chunked"})
        self.wfile.write(b'12\r\n{"status": "Wait')

    def _fault_garbage(self) -> None:
        self.wfile.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9 + b"\r\n\r\n")

    def _fault_hang_up(self) -> None:
        """Not a word."""

    def _fault_silence(self) -> None:
        while not self.over():
            self.server.fake.wait(POLL_S)

    def _fault_half_a_refusal(self) -> None:
        self._head(500, {"Content-Type": "application/json", "Content-Length": "1000"})
        self.wfile.write(b'{"message": "som')
        self._fault_silence()

    def _fault_drip(self) -> None:
        self._head(200, {"Content-Type": "application/json", "Content-Length": "100000"})
        self._drip(b"A" * 100000)

    def _fault_drip_head(self) -> None:
        self._drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"A" * 100000)

    def _fault_endless(self) -> None:
        self._head(200, {"Content-Type": "application/json", "Connection": "close"})
        self._pour(iter(lambda: b"A" * 65536, b""))

    def _drip(self, data: bytes) -> None:
        for byte in data:
            self._pour([bytes([byte])])
            self.server.fake.wait(POLL_S)
            if self.over():
                return

    def _pour(self, pieces: Iterable[bytes]) -> None:
        with contextlib.suppress(OSError):
            for piece in pieces:
                self.wfile.write(piece)
