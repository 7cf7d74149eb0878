"""How does the demonstration show what happens? It prints, runs the real commands and agent, and checks outcomes."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
LIMIT_S = 30.0
_WIDTH = 80
_BOLD, _DIM, _GREEN, _CYAN, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[36m", "\x1b[0m"


class NotAsTold(Exception):
    """Something did not come out as the story says."""


class Stage:
    """Where the story is told. `root`: the folder of the machine. `pace_s`: how long a reader gets for a scene."""

    def __init__(self, root: str, pace_s: float) -> None:
        self.root = root
        self._pace_s = pace_s
        self._colour = sys.stdout.isatty()
        self._width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)

    def scene(self, title: str) -> None:
        """Begin a scene, after a pause for the reader of the last one."""
        time.sleep(self._pace_s)
        self._print("", "")
        self._print(_BOLD, f"== {title} ".ljust(self._width - 1, "="))

    def say(self, text: str) -> None:
        """Tell what happens; it stands there for a moment before it does."""
        self._print("", textwrap.fill(text, self._width - 1))
        time.sleep(self._pace_s / 3)

    def done(self, text: str) -> None:
        """Tell what has been seen."""
        self._print(_GREEN, textwrap.fill(f"-> {text}", self._width - 1, subsequent_indent="   "))

    def command(self, *arguments: str, code: int = 0, only: Callable[[str], bool] = lambda _: True) -> str:
        """Run a real command on the machine and show what it says, or `only` some lines; its exit code is checked."""
        self._print(_CYAN, f"$ tpuagent {' '.join(arguments)}")
        done = subprocess.run(
            [sys.executable, "-m", "tests.fakes", self.root, *arguments],
            cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=LIMIT_S, check=False,
        )  # fmt: skip
        for line in filter(only, done.stdout.splitlines()):
            self._print("", textwrap.fill(line, self._width - 1, subsequent_indent="  ", replace_whitespace=False))
        if done.returncode:
            self._print(_DIM, f"(exit code {done.returncode})")
        self.check(done.returncode == code, f"exit code {done.returncode} and not {code}:\n{done.stdout}")
        return done.stdout

    def log(self, line: str) -> None:
        """Show a line of the agent."""
        lines = textwrap.wrap(line, self._width - 9, break_on_hyphens=False)
        self._print(_DIM, "\n".join(f"agent | {part}" for part in lines))

    def check(self, true: object, otherwise: str) -> None:
        """The story goes on only if something is true."""
        if not true:
            raise NotAsTold(otherwise)

    def _print(self, style: str, text: str) -> None:
        print(f"{style}{text}{_PLAIN}" if self._colour and style else text, flush=True)


class Agent:
    """The real agent as a child, with its log and what it tells systemd."""

    def __init__(self, stage: Stage, folder: str, *, metadata_host: str = "") -> None:
        self._stage = stage
        notify = f"{folder}/notify"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(notify)  # of an agent before this one
        self._selector = selectors.DefaultSelector()
        self._notifications = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notifications.bind(notify)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes", stage.root, "run"],
            cwd=REPOSITORY, env={**os.environ, "NOTIFY_SOCKET": notify, "GCE_METADATA_HOST": metadata_host},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self._child.stderr
        self._selector.register(self._notifications, selectors.EVENT_READ)
        self._selector.register(self._child.stderr, selectors.EVENT_READ)
        self._left = b""

    def wait_for(self, text: str, *, only: Callable[[str], bool] = lambda _: True) -> None:
        """Show the agent's lines, or `only` some, up to one with this text in it."""
        end = time.monotonic() + LIMIT_S
        while self._selector.select(max(0.0, end - time.monotonic())):
            lines = list(self._read())
            self._stage.check(lines or self._child.poll() is None, f"the agent ended early, with {self._child.poll()}")
            for line in filter(only, lines):
                self._stage.log(line)
            if any(text in line for line in lines):
                return
        raise NotAsTold(f"the agent did not say {text!r} within {LIMIT_S:g} s")

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self._child.send_signal(number)

    def end(self) -> int:
        """Wait until it ends; its exit code."""
        return self._child.wait(LIMIT_S)

    def close(self) -> None:
        """End it, however the story went."""
        self._child.kill()
        self._child.wait()
        self._notifications.close()
        assert self._child.stderr
        self._child.stderr.close()

    def _read(self) -> Iterator[str]:
        """What is there to read: the log's lines, and those of the notifications that people see."""
        for key, _ in self._selector.select(0):
            if key.fileobj is self._notifications:
                told = self._notifications.recv(65536).decode().splitlines()
                yield from (line for line in told if line != "WATCHDOG=1")
                continue
            *lines, self._left = (self._left + os.read(key.fd, 65536)).split(b"\n")
            yield from (line.decode() for line in lines)
