"""Which writes does the simulated kernel refuse, swallow or leave waiting, because a test asked for it?"""

from __future__ import annotations

import fnmatch
import os
import select

from tests.fakes.tree import HIDDEN, Tree

_FAULTS = f"{HIDDEN}/faults"
REFUSE, SWALLOW, GATE = "refuse", "swallow", "gate"


class Gate:
    """A write that stops at the door of the kernel until it is let in. Nothing is locked meanwhile."""

    def __init__(self, tree: Tree, name: str) -> None:
        self._tree, self._name = tree, name
        # Open for both: neither end waits for the other one to come.
        self._reached, self._opened = (_open_pipe(tree, f"{name}.{end}") for end in ("reached", "opened"))

    def wait_reached(self, limit_s: float = 10) -> None:
        """Return when a write has come to the gate; TimeoutError when none does."""
        if not _readable(self._reached, limit_s):
            raise TimeoutError(f"no write came to {self._name}")

    def open(self) -> None:
        """Let the write in, and every later one."""
        self._tree.remove(f"{_FAULTS}/{self._name}")
        os.write(self._opened, b"!" * 16)


def add(tree: Tree, kind: str, path: str, text: str = "*", *, number: int = 0, times: int = 1) -> str:
    """Treat the next `times` writes of a text to a path so; both are shell patterns. Returns the fault's name."""
    with tree.lock():
        name = f"{len(tree.names(_FAULTS)):04}"
        tree.put(f"{_FAULTS}/{name}", f"{kind}\n{path}\n{text}\n{number}\n{times}")
    return name


def add_gate(tree: Tree, path: str, text: str) -> Gate:
    """Stop a write at the door."""
    name = f"gate{len(tree.names(_FAULTS)):04}"
    for end in ("reached", "opened"):
        tree.folder(_FAULTS)
        os.mkfifo(tree.at(f"{HIDDEN}/{name}.{end}"))
    gate = Gate(tree, name)
    tree.put(f"{_FAULTS}/{name}", f"{GATE}\n{path}\n{text}\n0\n1")
    return gate


def meet(tree: Tree, path: str, text: str) -> bool:
    """What happens to a write before the kernel sees it: nothing, an OSError, a wait, or True for "say it is done"."""
    for name in tree.names(_FAULTS):
        kind, wanted_path, wanted_text, number, _ = (tree.text(f"{_FAULTS}/{name}") or "\n\n\n\n").split("\n")
        if not fnmatch.fnmatchcase(path, wanted_path) or not fnmatch.fnmatchcase(text.strip("\n"), wanted_text):
            continue
        if kind == GATE:
            _wait(tree, name)
        elif _use_up(tree, name):
            if kind == REFUSE:
                raise OSError(int(number), os.strerror(int(number)), path)
            return True
    return False


def _use_up(tree: Tree, name: str) -> bool:
    with tree.lock():
        fault = (tree.text(f"{_FAULTS}/{name}") or "").split("\n")
        if len(fault) < 5 or (left := int(fault[4])) == 0:
            return False
        tree.put(f"{_FAULTS}/{name}", "\n".join([*fault[:4], str(left - 1)]))
    return True


def _wait(tree: Tree, name: str) -> None:
    reached, opened = (_open_pipe(tree, f"{name}.{end}") for end in ("reached", "opened"))
    os.write(reached, b"!")
    _readable(opened, None)
    os.read(opened, 1)
    os.close(reached)
    os.close(opened)


def _open_pipe(tree: Tree, name: str) -> int:
    return os.open(tree.at(f"{HIDDEN}/{name}"), os.O_RDWR | os.O_CLOEXEC)


def _readable(descriptor: int, limit_s: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if limit_s is None else limit_s * 1000))
