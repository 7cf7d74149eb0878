"""A real engine, as the contract sees it. For a guest, or a machine whose engine is for tests."""

from __future__ import annotations

import http.client
import json
import secrets
import socket
import tempfile
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote, urlencode

from tests.contract.engines.archive import BUSYBOX, archive
from tests.contract.engines.engines import LABEL, LIMITS
from tests.contract.engines.registry import Registry
from tpuagent.containers.credentials import render_authorization
from tpuagent.containers.engine import Engine


class RealEngineAtHand:
    """The engine behind a socket. Use it in a `with` statement."""

    def __init__(self, socket_path: str) -> None:
        self.socket_path = socket_path
        self._token = secrets.token_hex()
        self.authorization = render_authorization(self._token)
        self._open = ExitStack()
        with open(BUSYBOX, "rb") as file:
            self._program = file.read()
        self._registry = Registry(self._program, self._token)
        self.unpublished = f"{self._registry.host}/nobody/nothing:1"

    def __enter__(self) -> RealEngineAtHand:
        self._open.enter_context(self._registry)
        engine = Engine(self.socket_path, LIMITS)
        self.podman = engine.info().name == "Podman"
        with tempfile.NamedTemporaryFile() as file:
            file.write(archive(self._program))
            file.flush()
            engine.load(file.name)
        self.clean()
        return self

    def __exit__(self, *_: object) -> None:
        self.clean()
        for name in self._registry.names:
            self.forget(f"{self._registry.host}/{name}:1")
        self._open.close()

    def clean(self) -> None:
        """Remove the containers of these tests."""
        listed = self._ask(
            "GET", f"/containers/json?{urlencode({'all': 1, 'filters': json.dumps({'label': [LABEL]})})}"
        )
        for entry in listed:
            self._ask("DELETE", f"/containers/{entry['Id']}?force=1")

    def pause(self, name: str) -> None:
        """As another client would."""
        self._ask("POST", f"/containers/{name}/pause")

    def published(self, name: str, *, secret: bool = False) -> str:
        """In a registry of this machine."""
        self._registry.names[name] = secret
        return f"{self._registry.host}/{name}:1"

    def digest(self, _: str) -> str:
        """All of them are the same image."""
        return self._registry.digest

    def forget(self, reference: str) -> None:
        """As another client would."""
        self._ask("DELETE", f"/images/{quote(reference, safe='/:@')}?force=1")

    def _ask(self, method: str, path: str) -> Any:
        """Without the code that is tested, and whatever the answer is."""
        connection = http.client.HTTPConnection("localhost")
        with socket.socket(socket.AF_UNIX) as to:
            to.connect(self.socket_path)
            connection.sock = to
            connection.request(method, path)
            body = connection.getresponse().read()
        return json.loads(body) if body.startswith((b"[", b"{")) else None
