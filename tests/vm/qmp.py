"""How a test changes a running machine: QEMU's own protocol, one command at a time, and the events it sends."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from typing import Any

from .channel import GuestError

Reply = dict[str, Any]


class Qmp:
    """A connected QMP socket, not shared between threads."""

    def __init__(self, connection: socket.socket, timeout_s: float = 60) -> None:
        self._connection, self._timeout_s = connection, timeout_s
        self._lines = connection.makefile("rb")
        self._events: list[Reply] = []

    def greet(self) -> None:
        """Wait until QEMU answers; nothing else may be asked before."""
        self._next(time.monotonic() + self._timeout_s)
        self.execute("qmp_capabilities")

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """The command's return value; QEMU's own words when it refuses."""
        request = {"execute": command, "arguments": dict(arguments or {})}
        self._connection.sendall(json.dumps(request).encode() + b"\n")
        deadline = time.monotonic() + self._timeout_s
        while True:
            reply = self._next(deadline)
            if "event" in reply:
                self._events.append(reply)
            elif "error" in reply:
                raise GuestError(f"cannot {command} {dict(arguments or {})}: {reply['error'].get('desc')}")
            else:
                return reply.get("return")

    def add_device(self, arguments: Mapping[str, Any]) -> None:
        self.execute("device_add", arguments)

    def delete_device(self, device: str, timeout_s: float) -> None:
        """Ask the guest to let go of a device and wait until it has."""
        self.execute("device_del", {"id": device})
        self.wait_event("DEVICE_DELETED", {"device": device}, timeout_s)

    def wait_event(self, name: str, facts: Mapping[str, Any], timeout_s: float) -> Reply:
        """The first event of that name whose facts hold; one that came earlier and was not asked for counts too."""
        deadline = time.monotonic() + timeout_s
        while True:
            for event in self._events:
                if event["event"] == name and facts.items() <= event.get("data", {}).items():
                    self._events.remove(event)
                    return event
            message = self._next(deadline)
            if "event" in message:
                self._events.append(message)

    def quit(self) -> None:
        self.execute("quit")

    def close(self) -> None:
        self._lines.close()
        self._connection.close()

    def _next(self, deadline: float) -> Reply:
        self._connection.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            line = self._lines.readline()
        except TimeoutError as error:
            raise GuestError("QEMU did not answer in time") from error
        if not line:
            raise GuestError("QEMU ended")
        reply: Reply = json.loads(line)
        return reply
