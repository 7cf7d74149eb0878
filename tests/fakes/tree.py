"""How is a simulated machine kept in a folder? Files, links and locks; what a machine would not show is in `/.kernel`.

Everything is in the folder and nothing in a process, so that a daemon, a command and a test share one machine, and a
machine outlives whoever is killed. All paths are absolute paths of the simulated machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import threading
from collections.abc import Iterator

HIDDEN = "/.kernel"
_DRAFTS = f"{HIDDEN}/drafts"
_LOCKS = f"{HIDDEN}/locks"


class Tree:
    """The folder of one machine."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    def at(self, path: str) -> str:
        """Where a path of the machine really is."""
        return self.root + path

    def text(self, path: str) -> str | None:
        """The text of a file without its line end; None when it is not there."""
        try:
            with open(self.at(path), encoding="utf-8") as file:
                return file.read().rstrip("\n")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def put(self, path: str, text: str, mode: int = 0o644) -> None:
        """A new file with this text, in the place of any old one. A reader never sees a part of it."""
        os.makedirs(self.at(_DRAFTS), exist_ok=True)
        draft = self.at(f"{_DRAFTS}/{os.getpid()}-{threading.get_ident()}")
        with open(draft, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(draft, mode)
        os.makedirs(os.path.dirname(self.at(path)), exist_ok=True)
        os.rename(draft, self.at(path))

    def link(self, path: str, target: str) -> None:
        """A relative symbolic link to another path of the machine, as sysfs has them."""
        folder = os.path.dirname(self.at(path))
        os.makedirs(folder, exist_ok=True)
        os.symlink(os.path.relpath(self.at(target), os.path.realpath(folder)), self.at(path))

    def base(self, path: str) -> str | None:
        """The last part of where a link points; None when there is no link."""
        try:
            return os.path.basename(os.readlink(self.at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self, path: str) -> None:
        """Remove a file, a link, or a folder with all in it; nothing if it is not there."""
        place = self.at(path)
        if os.path.isdir(place) and not os.path.islink(place):
            shutil.rmtree(place)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place)

    def folder(self, path: str) -> None:
        """A folder, with those above it."""
        os.makedirs(self.at(path), exist_ok=True)

    def names(self, path: str) -> list[str]:
        """The sorted names in a folder; empty when there is none."""
        try:
            return sorted(os.listdir(self.at(path)))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, path: str) -> bool:
        """Whether the name leads to something."""
        return os.path.exists(self.at(path))

    @contextlib.contextmanager
    def lock(self, name: str = "kernel") -> Iterator[None]:
        """Hold one of the kernel's locks: a function's own by its address, or the one around each reaction.

        A function's lock is taken first and may be held long; the other one only while the folder changes.
        """
        self.folder(_LOCKS)
        descriptor = os.open(self.at(f"{_LOCKS}/{name}"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)
