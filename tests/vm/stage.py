"""What does a test do with a guest about containers?"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .agent import Journal, await_status
from .guest import Guest
from .scenery import REQUESTS
from .standins import PORT

VBAR = "tpu-agent-vbar"


class Stage:
    """A guest about containers, in the hands of a test."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    def containers(self) -> dict[str, dict[str, Any]]:
        """What the agent says of them, by name."""
        entries = json.loads(self.guest.check(["tpuagent", "containers", "--json"]))
        return {entry["name"]: entry for entry in entries}

    def vbar(self) -> dict[str, Any]:
        """What the agent says of vBar."""
        return self.containers()["vbar"]

    def inspect(self, name: str = VBAR) -> dict[str, Any]:
        """What Docker says of a container."""
        found: dict[str, Any] = json.loads(self.guest.check(["docker", "inspect", "--type=container", name]))[0]
        return found

    def ask(self, request: str) -> None:
        """Let the running vBar do something that it should not."""
        script = f"exec 3<>/dev/tcp/127.0.0.1/{PORT}; echo '{request}' >&3; sleep 0.2"
        self.guest.check(["bash", "-c", script])

    def requests(self) -> list[tuple[str, str, str, int]]:
        """What the registry was asked: method, path, who asked, and the status of the answer."""
        lines = self.guest.run(["cat", REQUESTS]).stdout.splitlines()
        return [(method, path, who, int(status)) for _, method, path, who, status in map(str.split, lines)]

    def pulls(self) -> int:
        """How often a manifest was asked for."""
        return sum("/manifests/" in path for _, path, _, _ in self.requests())

    def after(self, deed: Callable[[], object], *logged: str, timeout_s: float = 120) -> Journal:
        """Do something and wait until the agent has logged all of this."""
        journal = Journal(self.guest)
        deed()
        for text in logged:
            journal.wait_for(text, timeout_s)
        return journal

    def await_status(self, part: str, timeout_s: float = 60) -> str:
        """The status line, as soon as it has this in it."""
        return await_status(self.guest, part, timeout_s)

    def listens(self) -> bool:
        """Whether somebody listens on vBar's port."""
        return f":{PORT} " in self.guest.check(["ss", "-Hltn"])
