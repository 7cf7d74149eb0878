"""What answers at 169.254.169.254? A metadata server on a real socket, with its manners and, when asked, its faults.

`python3 metadata_server.py --address 169.254.169.254 --port 80` runs it alone; it needs nothing but Python, so that a
guest can run it too. `curl -X PUT --data-binary @FILE URL` then sets a value, `-X DELETE` takes one away, and a PUT to
`/faults` says what goes wrong with the next requests, in order: `503 503 html`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import select
import socket
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

ROOT = "/computeMetadata/v1"
_PAGE = "<!DOCTYPE html>\n<html lang=en>\n  <title>Error {0}</title>\n  <p><b>{0}.</b> That is an error.\n</html>\n"
_SECRETS = {"token", "identity"}  # never part of a recursive answer
_LISTS = {"aliases", "scopes"}
_LOCK_STEP_S = 0.05

Folder = dict[str, Any]


def a_vm() -> Folder:
    """What a virtual machine with one service account has."""
    account = {
        "aliases": "default\n",
        "email": "robot@example.iam.gserviceaccount.com",
        "scopes": "https://www.googleapis.com/auth/cloud-platform\n",
        "token": json.dumps({"access_token": "ya29.fake", "expires_in": 3599, "token_type": "Bearer"}),
    }
    accounts = {"default": account, account["email"]: account}
    instance = {
        "attributes": {},
        "id": "6502082742571311568",
        "name": "t1v-n-0",
        "service-accounts": accounts,
        "zone": "projects/12/zones/us-east5-a",
    }
    project = {"attributes": {}, "project-id": "example", "numeric-project-id": "12"}
    return {"instance": instance, "project": project, "universe": {"universe-domain": "googleapis.com"}}


class FakeMetadataServer:
    """A server on a port of its own. Use it in a `with` statement; `host` is what GCE_METADATA_HOST takes."""

    def __init__(self, attributes: dict[str, str] | None = None, address: str = "127.0.0.1", port: int = 0) -> None:
        self.tree = a_vm()
        self.tree["instance"]["attributes"].update(attributes or {})
        self.seen: list[str] = []  # paths with their queries
        self.changed = threading.Condition()
        self.stopping = threading.Event()
        self.drip_s = 5.0
        self._faults: deque[str] = deque()
        self._http = _Server((address, port), _Handler)
        self._http.fake = self
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.005,), daemon=True)
        self.host = f"{address}:{self._http.server_address[1]}"
        self.url = f"http://{self.host}{ROOT}"

    def __enter__(self) -> FakeMetadataServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        with self.changed:
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def put(self, path: str, value: str) -> None:
        """Set the value of a key, as `instance/attributes/tpu-env`, and tell those who wait for it."""
        with self.changed:
            *above, name = path.strip("/").split("/")
            folder = self.tree
            for part in above:
                folder = folder.setdefault(part, {})
            folder[name] = value
            self.changed.notify_all()

    def delete(self, path: str) -> None:
        """Take a key away."""
        with self.changed:
            *above, name = path.strip("/").split("/")
            folder = self.find("/".join(above))
            if isinstance(folder, dict):
                folder.pop(name, None)
            self.changed.notify_all()

    def find(self, path: str) -> Folder | str | None:
        """The value of a key or the folder at a path; None when there is none."""
        found: Any = self.tree
        for part in path.strip("/").split("/") if path.strip("/") else ():
            if not isinstance(found, dict) or part not in found:
                return None
            found = found[part]
        return found if isinstance(found, dict) else str(found)

    def fail(self, *faults: str) -> None:
        """Let the next requests go wrong, one in each way; the names are those of `_Handler`'s fault methods."""
        self._faults.extend(faults)

    def next_fault(self) -> str | None:
        """What goes wrong with the request that has just come."""
        return self._faults.popleft() if self._faults else None

    def until_asked(self, times: int, limit_s: float = 10.0) -> bool:
        """Wait until so many requests have come."""
        with self.changed:
            return self.changed.wait_for(lambda: len(self.seen) >= times, limit_s)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    fake: FakeMetadataServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the play."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Answer as the server does, or go wrong as ordered."""
        fake = self.server.fake
        with fake.changed:
            fake.seen.append(self.path)
            fake.changed.notify_all()
        fault = fake.next_fault()
        if fault is None:
            self._answer()
        elif fault.isdecimal():
            self._page(int(fault))
        else:
            getattr(self, "_fault_" + fault.replace("-", "_"))()

    def do_PUT(self) -> None:
        """Not the real server's: change a value from outside, or order faults."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        if self.path == "/faults":
            self.server.fake.fail(*body.split())
        else:
            self.server.fake.put(self._key(), body)
        self._send(200, b"")

    def do_DELETE(self) -> None:
        """Not the real server's: take a value away from outside."""
        self.server.fake.delete(self._key())
        self._send(200, b"")

    def log_message(self, *_: object) -> None:
        """Not on the tests' terminal."""

    # As it should be ----------------------------------------------------------------------------------------------

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).removeprefix(ROOT)

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        if path == "/":
            self._send(200, b"0.1/\ncomputeMetadata/\n")
        elif self.headers.get("X-Forwarded-For") or self.headers.get("Metadata-Flavor") != "Google":
            self._page(403)
        elif path != ROOT and not path.startswith(ROOT + "/"):
            self._page(404)
        else:
            query = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
            self._value(self._key(), query)

    def _value(self, key: str, query: dict[str, str]) -> None:
        fake = self.server.fake
        with fake.changed:
            found = fake.find(key)
            if found is not None and query.get("wait_for_change") == "true":
                found = self._await_change(key, query, found)
        if isinstance(found, dict) and not key.endswith("/"):
            query_part = urlsplit(self.path).query
            where = f"http://{self.headers['Host']}{urlsplit(self.path).path}/{'?' if query_part else ''}{query_part}"
            self._send(301, _PAGE.format(301).encode(), "text/html; charset=UTF-8", {"Location": where})
        elif found is None or (isinstance(found, str) and key.endswith("/")):
            self._page(404)
        else:
            body, kind = _rendered(found, query, key.strip("/").rpartition("/")[2])
            self._send(200, body, kind, {"ETag": _etag(found)})

    def _await_change(self, key: str, query: dict[str, str], found: Folder | str) -> Folder | str | None:
        last = query.get("last_etag") or _etag(found)
        end = time.monotonic() + float(query.get("timeout_sec", "inf"))
        fake = self.server.fake
        now: Folder | str | None = found
        while now is not None and _etag(now) == last and not fake.stopping.is_set() and not self._hung_up():
            if (left_s := end - time.monotonic()) <= 0:
                break
            fake.changed.wait(min(left_s, _LOCK_STEP_S))
            now = fake.find(key)
        return now

    def _hung_up(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _page(self, status: int) -> None:
        self._send(status, _PAGE.format(status).encode(), "text/html; charset=UTF-8")

    def _send(
        self, status: int, body: bytes, kind: str = "application/text", more: dict[str, str] | None = None,
        *, genuine: bool = True,
    ) -> None:  # fmt: skip
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}
        if genuine:
            headers |= {"Metadata-Flavor": "Google", "X-Frame-Options": "SAMEORIGIN"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    # As it should not be ------------------------------------------------------------------------------------------

    def _fault_none(self) -> None:
        self._answer()

    def _fault_html(self) -> None:
        self._send(200, b"<html><body>Please sign in</body></html>", "text/html", genuine=False)

    def _fault_genuine_html(self) -> None:
        self._send(200, b"<html><body>A: 'b'</body></html>", "text/html")

    def _fault_no_flavor(self) -> None:
        self._send(200, b"TPU_WORKER_ID: '7'\n", genuine=False)

    def _fault_redirect(self) -> None:
        self._send(302, b"", "text/html", {"Location": "http://127.0.0.1:1/sign-in"})

    def _fault_bytes(self) -> None:
        self._send(200, b"A: '1'\nB: '\xff\xfe'\n")

    def _fault_short(self) -> None:
        self._headers({"Content-Length": "1000"})
        self.wfile.write(b"TPU_WORKER_ID: '7'\n")
        self.close_connection = True

    def _fault_oversized(self) -> None:
        self._headers({"Connection": "close"})
        while not self.server.fake.stopping.is_set():
            self.wfile.write(b"A" * 65536)

    def _fault_silence(self) -> None:
        self._idle_until_hung_up()

    def _fault_reset(self) -> None:
        self.close_connection = True

    def _fault_garbage(self) -> None:
        self.wfile.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 9 + b"\r\n\r\n")
        self.close_connection = True

    def _fault_drip(self) -> None:
        self._headers({"Content-Length": "1000"})
        self._drip(b"A" * 1000)

    def _fault_drip_headers(self) -> None:
        self._drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"A" * 1000)

    def _headers(self, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {"Metadata-Flavor": "Google", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _drip(self, data: bytes) -> None:
        for byte in data:
            self.wfile.write(bytes([byte]))
            if self.server.fake.stopping.wait(self.server.fake.drip_s):
                return

    def _idle_until_hung_up(self) -> None:
        while not self.server.fake.stopping.wait(_LOCK_STEP_S) and not self._hung_up():
            pass
        self.close_connection = True


def _etag(value: Folder | str) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _rendered(value: Folder | str, query: dict[str, str], name: str) -> tuple[bytes, str]:
    recursive = query.get("recursive", "").lower() == "true"
    if query.get("alt", "json" if recursive and isinstance(value, dict) else "text") == "json":
        return json.dumps(_document(value, name)).encode(), "application/json"
    if isinstance(value, str):
        kind = "application/json" if value.startswith("{") else "application/text"
        return value.encode(), kind
    if recursive:
        return "".join(f"{path} {text}\n" for path, text in _flat(value, "")).encode(), "application/text"
    return "".join(
        f"{name}{'/' if isinstance(below, dict) else ''}\n" for name, below in sorted(value.items())
    ).encode(), ("application/text")


def _document(value: Any, name: str = "") -> Any:
    """A folder as JSON: its own names in camel case, those of attributes as they are, lists as lists."""
    if not isinstance(value, dict):
        return value.split() if name in _LISTS else value
    shown = {below: part for below, part in value.items() if below not in _SECRETS}
    return {below if name == "attributes" else _camel(below): _document(part, below) for below, part in shown.items()}


def _camel(name: str) -> str:
    if "@" in name:
        return name
    first, *others = name.split("-")
    return first + "".join(part.capitalize() for part in others)


def _flat(folder: Folder, prefix: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name, below in sorted(folder.items()):
        if isinstance(below, dict):
            lines += _flat(below, f"{prefix}{name}/")
        elif name not in _SECRETS:
            lines.append((prefix + name, below))
    return lines


def main() -> None:
    """Run alone until killed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--tpu-env", metavar="FILE", help="the attribute tpu-env")
    arguments = parser.parse_args()
    attributes = {}
    if arguments.tpu_env:
        with open(arguments.tpu_env, encoding="utf-8") as file:
            attributes["tpu-env"] = file.read()
    with FakeMetadataServer(attributes, arguments.address, arguments.port) as server:
        print(f"metadata server at {server.url}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
