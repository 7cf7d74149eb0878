"""The daemon as systemd runs it: a child process with a notification socket, on a machine in a folder.

Everything is waited for by event: a datagram, a line of the log, the end of the process. `LIMIT_S` is only for a test
that fails.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tests.conftest import REPOSITORY
from tests.fakes.machine import Machine

LIMIT_S = 20.0
_CREDENTIALS = struct.Struct("3i")

Found = TypeVar("Found")


@dataclass(frozen=True)
class Message:
    """A datagram, who sent it, and when it was received."""

    text: str
    pid: int
    at_s: float


@dataclass
class Daemon:
    """`tpuagent run` on a machine. `messages` and `log` hold what has been received so far."""

    machine: Machine
    process: subprocess.Popen[bytes]
    socket: socket.socket
    folder: str
    messages: list[Message] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _rest: bytes = b""

    @classmethod
    def start(
        cls,
        machine: Machine,
        *arguments: str,
        watchdog_s: float | None = None,
        program: Sequence[str] = ("-m", "tests.fakes"),
        containers: bool = False,
    ) -> Daemon:
        """Start it, as the unit does. `program`: what Python runs, before the machine's folder and the arguments.

        Without `containers` it has none to keep running, so that its status is about the rest.
        """
        if not containers:
            machine.tree.put("/etc/tpu-agent/config.d/00-no-containers.yaml", "containers: {vbar: {enabled: false}}\n")
        folder = tempfile.mkdtemp()  # not in pytest's folder: the path of a socket is short
        ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.bind(f"{folder}/notify")
        ours.setblocking(False)
        environment = {**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"}
        if watchdog_s:
            environment["WATCHDOG_USEC"] = str(int(watchdog_s * 1e6))
        process = subprocess.Popen(
            [sys.executable, *program, machine.root, "run", *arguments],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        return cls(machine, process, ours, folder)

    # Waiting ------------------------------------------------------------------------------------------------------

    def wait_message(self, start: str, since: int = 0) -> Message:
        """The first datagram from number `since` on that starts so."""
        return self._wait_for(lambda: self.messages[since:], lambda one: one.text.startswith(start), start)

    def wait_status(self, part: str, since: int = 0) -> str:
        """The first status line from datagram `since` on with this in it."""

        def is_it(one: Message) -> bool:
            return one.text.startswith("STATUS=") and part in one.text

        return self._wait_for(lambda: self.messages[since:], is_it, part).text.removeprefix("STATUS=")

    def wait_log(self, *parts: str, since: int = 0, limit_s: float = LIMIT_S) -> str:
        """The first line of the log from number `since` on with all of this in it."""

        def is_it(line: str) -> bool:
            return all(part in line for part in parts)

        return self._wait_for(lambda: self.log[since:], is_it, str(parts), limit_s)

    def wait_ready(self) -> str:
        """Wait for READY and read the log up to there; the status line of that moment."""
        self.wait_message("READY=1")
        self.wait_log("agent_ready")
        texts = [one.text for one in self.messages]
        return [text for text in texts[: texts.index("READY=1")] if text.startswith("STATUS=")][-1].removeprefix(
            "STATUS="
        )

    def _wait_for(
        self, seen: Callable[[], list[Found]], is_it: Callable[[Found], bool], what: str, limit_s: float = LIMIT_S
    ) -> Found:
        end = time.monotonic() + limit_s
        while True:
            for one in seen():
                if is_it(one):
                    return one
            if not self._receive(end - time.monotonic()):
                raise TimeoutError(
                    f"waited for {what}; messages: {[one.text for one in self.messages]}; log: {self.log}"
                )

    def _receive(self, limit_s: float) -> bool:
        """Take what is there of datagrams and log; False when nothing comes any more."""
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        if self.process.stderr and not self.process.stderr.closed:
            poll.register(self.process.stderr, select.POLLIN)
        ready = [descriptor for descriptor, _ in poll.poll(max(0.0, limit_s) * 1000)]
        if self.socket.fileno() in ready:
            self._receive_messages()
            return True
        if ready and self.process.stderr:
            more = os.read(self.process.stderr.fileno(), 65536)
            *lines, self._rest = (self._rest + more).split(b"\n")
            self.log += [line.decode() for line in lines]
            if not more:
                self.process.stderr.close()
            return True
        return False

    def _receive_messages(self) -> None:
        while True:
            try:
                data, extra, _, _ = self.socket.recvmsg(8192, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                return
            pid, _, _ = _CREDENTIALS.unpack(extra[0][2])
            self.messages.append(Message(data.decode(), pid, time.monotonic()))

    def beside(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command beside it: its exit code, and what it printed.

        What the daemon says is received meanwhile, as systemd does: the queue of a notification socket is short.
        """
        command = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes", self.machine.root, *arguments],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        ended = os.pidfd_open(command.pid)
        try:
            poll = select.poll()
            for descriptor in (
                ended,
                self.socket.fileno(),
                self.process.stderr.fileno() if self.process.stderr else -1,
            ):
                poll.register(descriptor, select.POLLIN)
            while ended not in [descriptor for descriptor, _ in poll.poll(LIMIT_S * 2000)]:
                self._receive(0)
        finally:
            os.close(ended)
        out, err = command.communicate(timeout=LIMIT_S)
        return command.returncode, out, err

    # Ending -------------------------------------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait_end(self, limit_s: float = LIMIT_S) -> int:
        """Wait until it has ended; its exit code. What it said until then is in `messages` and `log`."""
        end = time.monotonic() + limit_s
        while self.process.stderr and not self.process.stderr.closed:
            if not self._receive(end - time.monotonic()):
                raise TimeoutError(f"it did not end within {limit_s} s; log: {self.log}")
        code = self.process.wait(max(0.1, end - time.monotonic()))
        self._receive_messages()
        return code

    def stop(self) -> None:
        """As `systemctl stop` does; it must end well."""
        self.signal(signal.SIGTERM)
        assert self.wait_end() == 0, self.log

    def discard(self) -> None:
        """Leave nothing of it behind, whatever has happened."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stderr:
            self.process.stderr.close()
        self.socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)
