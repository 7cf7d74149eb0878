"""How a test talks with the runner in a guest: each command is a `Running`, its end a `Result`; many run at once."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shlex
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INPUT_CHUNK = 1 << 16


class GuestError(Exception):
    """The guest did not do what was asked; `args[0]` says what and shows what it printed."""


class GuestGone(GuestError):
    """The guest ended or rebooted while something was asked of it."""


class CommandTimedOut(GuestError):
    """The command was still running after its time; it was killed."""


class CommandFailed(GuestError):
    """`check` ran a command that did not end with 0."""


@dataclass(frozen=True)
class Result:
    """How a command ended. `code` is negative for a signal. Bytes that are not UTF-8 are kept as surrogate escapes."""

    code: int
    stdout: str
    stderr: str


class Running:
    """A command in the guest."""

    def __init__(self, channel: Channel, identity: int, argv: Sequence[str]) -> None:
        self._channel, self._identity, self._argv = channel, identity, argv
        self._streams = {"stdout": bytearray(), "stderr": bytearray()}
        self._code: int | None = None
        self._error: GuestError | None = None

    @property
    def stdout(self) -> str:
        """What it has printed so far."""
        return self._text("stdout")

    @property
    def stderr(self) -> str:
        return self._text("stderr")

    def write(self, data: str | bytes, end: bool = False) -> None:
        """Give it input; `end=True` closes its input after that."""
        piece = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        for start in range(0, len(piece), INPUT_CHUNK):
            encoded = base64.b64encode(piece[start : start + INPUT_CHUNK]).decode()
            self._channel.send({"id": self._identity, "do": "input", "data": encoded})
        if end:
            self._channel.send({"id": self._identity, "do": "end"})

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to it and its children."""
        self._channel.send({"id": self._identity, "do": "kill", "signal": int(number)})

    def wait_for(self, text: str, timeout_s: float = 60) -> None:
        """Return as soon as `text` is in its standard output."""
        if not self._channel.wait(lambda: text in self.stdout or self._over(), timeout_s) or text not in self.stdout:
            self._channel.require(self._error)
            raise CommandTimedOut(f"{self} did not print {text!r} within {timeout_s} s:\n{self.stdout}{self.stderr}")

    def wait(self, timeout_s: float = 60) -> Result:
        """Its result. After `timeout_s` it is killed and `CommandTimedOut` raised."""
        if not self._channel.wait(self._over, timeout_s):
            self.kill()
            raise CommandTimedOut(f"{self} still ran after {timeout_s} s:\n{self.stdout}{self.stderr}")
        self._channel.require(self._error)
        assert self._code is not None
        return Result(self._code, self.stdout, self.stderr)

    def take(self, message: Mapping[str, Any]) -> None:
        """One message of the runner about this command (called by the channel, under its lock)."""
        for stream, kept in self._streams.items():
            kept.extend(base64.b64decode(message.get(stream, "")))
        self._code = message.get("exit")
        if "error" in message:
            self._error = GuestError(message["error"])

    def fail(self, error: GuestError) -> None:
        self._error = error

    def _over(self) -> bool:
        return self._code is not None or self._error is not None

    def _text(self, stream: str) -> str:
        return bytes(self._streams[stream]).decode("utf-8", "surrogateescape")

    def __str__(self) -> str:
        return f"`{shlex.join(self._argv)}`"


class Channel:
    """One socket to the runner. A thread reads it, so a guest never waits for a test to listen."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._running: dict[int, Running] = {}
        self._numbers = itertools.count(1)
        self._boots = 0
        self._closed = False
        self._reader = threading.Thread(target=self._read, name="guest-channel", daemon=True)
        self._reader.start()

    @property
    def boots(self) -> int:
        """How often the runner has said hello."""
        return self._boots

    def wait_hello(self, boots: int, timeout_s: float) -> bool:
        """True when the runner has said hello `boots` times; False at the time-out or when the guest ended."""
        return self.wait(lambda: self._boots >= boots or self._closed, timeout_s) and not self._closed

    def wait_closed(self, timeout_s: float) -> bool:
        return self.wait(lambda: self._closed, timeout_s)

    def start(self, argv: Sequence[str], user: str | None, environment: Mapping[str, str]) -> Running:
        identity = next(self._numbers)
        running = Running(self, identity, argv)
        with self._changed:
            self._running[identity] = running
        self.send({"id": identity, "do": "start", "argv": list(argv), "user": user, "environment": dict(environment)})
        return running

    def send(self, message: Mapping[str, Any]) -> None:
        try:
            with self._sending:
                self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise GuestGone(f"cannot send to the guest: {error}") from error

    def close(self) -> None:
        """Hang up, and return when nothing of this channel is left."""
        with contextlib.suppress(OSError):  # QEMU may have hung up first
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._connection.close()

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    @staticmethod
    def require(error: GuestError | None) -> None:
        if error is not None:
            raise error

    def _read(self) -> None:
        with self._connection.makefile("rb") as lines:
            for line in lines:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue  # a reset may cut a line in two
                with self._changed:
                    self._take(message)
                    self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._give_up("the guest ended")
            self._changed.notify_all()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "hello" in message:
            self._boots += 1
            self._give_up("the guest rebooted, or its runner started again")
        elif message.get("id") in self._running:
            self._running[message["id"]].take(message)
            if "exit" in message or "error" in message:
                del self._running[message["id"]]

    def _give_up(self, why: str) -> None:
        for running in self._running.values():
            running.fail(GuestGone(f"{running} was lost: {why}"))
        self._running.clear()
