"""What answers at the container engine's socket? An engine on a real socket, with its manners and, when asked, faults.

`python3 -m tests.fakes.engine SOCKET` runs it alone, for a program in another process. Lines on its standard input
are then what a test would call: `add_image gcr.io/x/y:1`, `publish gcr.io/x/z:1 TOKEN`, `end NAME 3`, `pause NAME`,
`stop gone`, `serve`.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from tests.fakes.engine_api import Handler
from tests.fakes.engine_http import Seen, Server
from tests.fakes.engine_state import EngineState
from tests.fakes.engine_words import Docker, Podman, Words

How = Literal["gone", "refusing"]


class FakeEngine:
    """An engine on a socket. Use it in a `with` statement. `state` is what it has, and what tests do to it.

    `fail` lets the next requests go wrong; `hang` and `stop` hold until `serve`.
    """

    def __init__(self, path: str, words: Words | None = None) -> None:
        self.path = path
        self.state = EngineState(words or Docker())
        self.seen: list[Seen] = []
        self.lowest_api = (1, 24)
        self.serving = False
        self._faults: deque[str] = deque()
        self._always: str | None = None
        self._hanging = False
        self._switching = threading.RLock()
        self._server: Server | None = None
        self._blocker: socket.socket | None = None

    def __enter__(self) -> FakeEngine:
        self.serve()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop("gone", containers="kept")

    # How it is ----------------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer, whatever was before."""
        with self._switching:
            self._change(hanging=False, always=None)
            if self._server:
                return
            self._unblock()
            self._server = Server(self, self.path, Handler)
            self._change(serving=True)
            threading.Thread(target=self._server.serve_forever, args=(0.005,), name="fake engine", daemon=True).start()

    def stop(self, how: How = "gone", *, containers: Literal["killed", "kept"] = "killed") -> None:
        """End as `systemctl stop docker` does: its containers are killed unless it keeps them (live-restore).

        gone: the socket is gone too. refusing: it is there, and nobody listens on it.
        """
        with self._switching:
            self._change(serving=False, hanging=False, always=None)
            if self._server:
                self._server.shutdown()
                self._server.server_close()
                self._server.cut()
                self._server = None
            if containers == "killed":
                self.state.kill_all()
            self._unblock()
            if how == "refusing":
                self._blocker = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._blocker.bind(self.path)

    def restart(self, *, containers: Literal["killed", "kept"] = "killed") -> None:
        """What `systemctl restart docker` does."""
        self.stop(containers=containers)
        self.serve()

    def hang(self) -> None:
        """Take requests and say nothing more, until `serve`."""
        self._change(hanging=True)

    def fail(self, *faults: str) -> None:
        """Let the next requests go wrong, one in each way: a status, or the name of a `_fault_` method of `Speaker`."""
        self._faults.extend(faults)

    def fail_always(self, fault: str) -> None:
        """Let every request go wrong so, until `serve`."""
        self._change(always=fault)

    # What it has seen ---------------------------------------------------------------------------------------------

    def requests(self, method: str, path: str) -> list[Seen]:
        """Those that have come with this method and the beginning of this path."""
        with self.state.changed:
            return [one for one in self.seen if one.method == method and one.path.startswith(path)]

    @property
    def pulls(self) -> list[Seen]:
        return self.requests("POST", "/images/create")

    def until(self, true: Callable[[], object], limit_s: float = 10.0) -> bool:
        """Wait until something is true, of the engine or of what it has seen."""
        return self.state.until(true, limit_s)

    # For the handler ----------------------------------------------------------------------------------------------

    def note(self, seen: Seen) -> str | None:
        """A request has come: which fault it gets. Waits while the engine hangs."""
        with self.state.changed:
            self.seen.append(seen)
            self.state.changed.notify_all()
            if seen.path != "/_ping" and self._faults:
                return self._faults.popleft()
        self.hold()
        return self._always

    def hold(self) -> None:
        """Wait while the engine hangs."""
        with self.state.changed:
            self.state.changed.wait_for(lambda: not self._hanging)

    def wait(self, limit_s: float) -> None:
        """Wait a moment, unless something changes."""
        with self.state.changed:
            self.state.changed.wait(limit_s)

    @staticmethod
    def decoded(authorization: str) -> str:
        """What an X-Registry-Auth header says; empty when it cannot be read."""
        try:
            return base64.urlsafe_b64decode(authorization + "=" * (-len(authorization) % 4)).decode()
        except ValueError:
            return ""

    def _change(self, **now: Any) -> None:
        with self.state.changed:
            for name, value in now.items():
                setattr(self, name if name == "serving" else f"_{name}", value)
            self.state.changed.notify_all()

    def _unblock(self) -> None:
        if self._blocker:
            self._blocker.close()
            self._blocker = None
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def obey(engine: FakeEngine, line: str) -> None:
    """Do what a line of the standard input says."""
    name, *words = line.split()
    owner = engine if hasattr(engine, name) else engine.state
    getattr(owner, name)(*(int(word) if word.isdecimal() and name == "end" else word for word in words))


def main() -> None:
    """Run alone until killed, or until the standard input ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("socket")
    parser.add_argument("--podman", action="store_true")
    parser.add_argument("--image", action="append", default=[], metavar="REFERENCE", help="the engine has it")
    parser.add_argument("--publish", action="append", default=[], metavar="REFERENCE", help="the registry has it")
    arguments = parser.parse_args()
    with FakeEngine(arguments.socket, Podman() if arguments.podman else Docker()) as engine:
        for reference in arguments.image:
            engine.state.add_image(reference)
        for reference in arguments.publish:
            engine.state.publish(reference)
        print(f"container engine at {engine.path}", flush=True)
        for line in sys.stdin:
            obey(engine, line)
            print(f"done: {line.strip()}", flush=True)


if __name__ == "__main__":
    main()
