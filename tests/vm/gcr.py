"""A registry as Google's is for a client: TLS, and tokens for an access token of this machine. Runs in a guest.

It stands before Debian's docker-registry, which has the images. What a client may have is decided here: repositories
that /etc/gcr-public names are public, all others are for who shows the token that the metadata server hands out. Every
request is a line in /var/log/gcr.log.
"""

from __future__ import annotations

import base64
import http.client
import json
import pathlib
import secrets
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

HOST = "gcr.io"
BEHIND = ("127.0.0.1", 5000)
LOG = pathlib.Path("/var/log/gcr.log")
PUBLIC = pathlib.Path("/etc/gcr-public")
TOKEN = "/computeMetadata/v1/instance/service-accounts/default/token"  # noqa: S105  a path
_lock = threading.Lock()
_granted: dict[str, str] = {}  # a registry token, and who has it


def access_token() -> str:
    """What the metadata server hands out now."""
    connection = http.client.HTTPConnection("169.254.169.254", timeout=5)
    connection.request("GET", TOKEN, headers={"Metadata-Flavor": "Google"})
    return str(json.loads(connection.getresponse().read())["access_token"])


class Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    who = "nobody"

    def do_GET(self) -> None:
        """Tokens, and what the registry has."""
        path = urlsplit(self.path).path
        if path == "/v2/token":
            self._grant()
        elif self._may_have(path):
            self._pass_on()
        elif self.who == "nobody":
            realm = f'Bearer realm="https://{HOST}/v2/token",service="{HOST}"'
            self._answer(401, {"errors": [{"code": "UNAUTHORIZED", "message": "Unauthorized"}]}, realm)
        else:
            message = f"Permission denied for {self.who}"
            self._answer(403, {"errors": [{"code": "DENIED", "message": message}]})

    do_HEAD = do_GET  # noqa: N815  as http.server wants it

    def _grant(self) -> None:
        """Anybody gets a token; whether it opens anything shows later, as at Google's."""
        kind, _, shown = self.headers.get("Authorization", "").partition(" ")
        who = "anonymous"
        if kind == "Basic":
            user, _, password = base64.b64decode(shown).decode().partition(":")
            if user != "oauth2accesstoken" or password != access_token():
                self.who = "stale"
                self._answer(401, {"errors": [{"code": "UNAUTHORIZED", "message": "Unauthorized"}]})
                return
            who = "account"
        token = secrets.token_urlsafe(24)
        with _lock:
            _granted[token] = who
        self.who = who
        scope = parse_qs(urlsplit(self.path).query).get("scope", [""])[0]
        self._answer(200, {"token": token, "expires_in": 300, "scope": scope})

    def _may_have(self, path: str) -> bool:
        kind, _, token = self.headers.get("Authorization", "").partition(" ")
        self.who = _granted.get(token, "nobody") if kind == "Bearer" else "nobody"
        if self.who == "nobody":
            return False
        public = PUBLIC.read_text().split() if PUBLIC.exists() else []
        return self.who == "account" or any(path.startswith(f"/v2/{name}/") for name in public) or path == "/v2/"

    def _pass_on(self) -> None:
        connection = http.client.HTTPConnection(*BEHIND, timeout=60)
        names = ("Accept", "Range", "If-None-Match")
        headers = {name: ", ".join(self.headers.get_all(name, [])) for name in names if name in self.headers}
        connection.request(self.command, self.path, headers={**headers, "Host": HOST})
        answer = connection.getresponse()
        body = answer.read()
        self.log(answer.status)
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, status: int, document: object, challenge: str = "") -> None:
        self.log(status)
        body = json.dumps(document).encode()
        self.send_response_only(status)
        if challenge:
            self.send_header("WWW-Authenticate", challenge)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log(self, status: int) -> None:
        """One line: who asked for what, and what came of it."""
        with _lock, LOG.open("a") as file:
            file.write(f"{time.time():.3f} {self.command} {urlsplit(self.path).path} {self.who} {status}\n")

    def log_message(self, *_: object) -> None:
        """Not to standard error."""


def main(certificate: str, key: str) -> None:
    """Serve until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 443), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
