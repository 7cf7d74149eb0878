"""How do the events of a simulated kernel reach whoever listens? Through a pipe for each listener, in the folder."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections.abc import Sequence

from tests.fakes.tree import HIDDEN, Tree
from tpuagent.devices.monitor import Event, MonitorLost

_LISTENERS = f"{HIDDEN}/listeners"
_counter = itertools.count()


class FakeMonitor:
    """A Monitor. When events come faster than they are taken some are lost, and from then on every read says so."""

    def __init__(self, root: str) -> None:
        self._tree = Tree(root)
        self._name = f"{os.getpid()}-{next(_counter)}"
        self._tree.folder(_LISTENERS)
        place = self._tree.at(f"{_LISTENERS}/{self._name}")
        draft = f"{place}.draft"
        os.mkfifo(draft)
        # Open for both: with a writer of its own the pipe has no end between two events.
        self._descriptor = os.open(draft, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        os.rename(draft, place)

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._descriptor

    def receive(self) -> Sequence[Event]:
        """The events that are there now. MonitorLost as after ENOBUFS: again and again until a new one is opened."""
        events = []
        with contextlib.suppress(BlockingIOError):
            while text := os.read(self._descriptor, 65536).decode():
                events += [Event(*line.split()) for line in text.splitlines() if line.strip()]
        # After the reading, which takes the byte that wakes: a loss in between would never be noticed.
        if self._tree.exists(f"{_LISTENERS}/{self._name}.lost"):
            raise MonitorLost(os.strerror(errno.ENOBUFS))
        return events

    def close(self) -> None:
        """Stop listening."""
        os.close(self._descriptor)
        for name in (self._name, f"{self._name}.lost"):
            self._tree.remove(f"{_LISTENERS}/{name}")


def send(tree: Tree, subsystem: str, action: str, name: str) -> None:
    """Tell everybody who listens."""
    for listener in tree.names(_LISTENERS):
        if "." not in listener:
            _tell(tree, listener, f"{subsystem} {action} {name}\n")


def lose(tree: Tree) -> None:
    """Let every listener find that its buffer has overflowed."""
    for listener in tree.names(_LISTENERS):
        if "." not in listener:
            tree.put(f"{_LISTENERS}/{listener}.lost", "")
            _tell(tree, listener, "\n")  # wakes it


def _tell(tree: Tree, listener: str, line: str) -> None:
    try:
        descriptor = os.open(tree.at(f"{_LISTENERS}/{listener}"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        if fault.errno not in {errno.ENXIO, errno.ENOENT}:
            raise
        tree.remove(f"{_LISTENERS}/{listener}")  # its process has ended
        return
    try:
        os.write(descriptor, line.encode())
    except BlockingIOError:
        tree.put(f"{_LISTENERS}/{listener}.lost", "")
    finally:
        os.close(descriptor)
