"""Where does a real engine pull from in these tests? A registry on this machine that has one image under many names.

As Google's it sends every client for a token first, and gives it for a user and a password.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from tests.contract.engines.archive import configuration, layer, sha256

# Podman wants TLS but for registries that are named in /etc/containers/registries.conf.d, with their ports.
PORT = 5010
_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar"


class Registry:
    """The registry, on its port. Use it in a `with` statement. `secret` names are for who has the password."""

    def __init__(self, program: bytes, password: str) -> None:
        content = layer(program)
        # Not the image of the archive: to Podman one image has all names and digests that it ever came with.
        config = configuration(content, "2024-02-02T00:00:00Z")
        self.blobs = {f"sha256:{sha256(blob)}": blob for blob in (content, config)}
        self.manifest = json.dumps({
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _described("application/vnd.docker.container.image.v1+json", config),
            "layers": [_described(_LAYER, content)],
        }).encode()  # fmt: skip
        self.digest = f"sha256:{sha256(self.manifest)}"
        self.names: dict[str, bool] = {}
        self.password = password
        self._http = _Server(("127.0.0.1", PORT), _Handler)
        self._http.registry = self
        self.host = f"localhost:{PORT}"

    def __enter__(self) -> Registry:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    registry: Registry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        """Tokens, manifests and layers."""
        registry, path = self.server.registry, urlsplit(self.path).path
        if path == "/token":
            self._json(200, {"token": "known" if self._shows(registry.password) else "anonymous"})
            return
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        found = re.fullmatch(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<which>[^/]+)", path)
        if not bearer:
            challenge = f'Bearer realm="http://{registry.host}/token",service="registry"'
            self._refuse(401, "UNAUTHORIZED", "authentication required", challenge)
        elif found is None:
            self._send(200, b"{}", "application/json")
        elif registry.names.get(found["name"]) and bearer != "known":
            self._refuse(403, "DENIED", "Permission denied for anonymous")
        elif found["name"] not in registry.names:
            self._refuse(404, "NAME_UNKNOWN", "repository name not known to registry")
        elif found["kind"] == "blobs" and found["which"] in registry.blobs:
            self._send(200, registry.blobs[found["which"]], "application/octet-stream")
        elif found["kind"] == "manifests" and found["which"] in {"1", registry.digest}:
            self._send(200, registry.manifest, _MANIFEST)
        else:
            self._refuse(404, "MANIFEST_UNKNOWN", "manifest unknown")

    do_HEAD = do_GET  # noqa: N815  as http.server wants it

    def log_message(self, *_: object) -> None:
        """Not on the tests' terminal."""

    def _shows(self, password: str) -> bool:
        scheme, _, shown = self.headers.get("Authorization", "").partition(" ")
        return scheme == "Basic" and base64.b64decode(shown).decode().endswith(f":{password}")

    def _refuse(self, status: int, code: str, message: str, challenge: str = "") -> None:
        body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
        self._send(status, body, "application/json", {"WWW-Authenticate": challenge} if challenge else {})

    def _json(self, status: int, document: Any) -> None:
        self._send(status, json.dumps(document).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), **(more or {})}
        headers["Docker-Distribution-Api-Version"] = "registry/2.0"
        headers["Docker-Content-Digest"] = f"sha256:{sha256(body)}"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _described(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "size": len(blob), "digest": f"sha256:{sha256(blob)}"}
