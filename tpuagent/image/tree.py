"""What is in a file of the machine, or of an image that is not booted? Hands.

In an image a symbolic link means what it will mean there: one to /etc/x leads to the image's /etc/x, and nothing that
is read here ever stands outside the image.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from tpuagent.host import MOST_LINKS, Host


class Tree:
    """The files below a host's root."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def read(self, path: str) -> str | None:
        """A file's text; None when there is none. Raises OSError."""
        place = self.inside(path)
        return None if place is None or not os.path.isfile(self._host.at(place)) else self._host.read(place)

    def names(self, path: str) -> list[str]:
        """What is in a folder, by name; nothing when there is no such folder."""
        place = self.inside(path)
        return [] if place is None else self._host.names(place)

    def exists(self, path: str) -> bool:
        """Whether there is such a file, behind links."""
        place = self.inside(path)
        return place is not None and self._host.exists(place)

    def link(self, path: str) -> str | None:
        """Where a link points, as it says."""
        folder = self.inside(os.path.dirname(path))
        return None if folder is None else self._host.link(os.path.join(folder, os.path.basename(path)))

    def files(self, *folders: str, ending: str = "") -> Iterator[str]:
        """The files right below these folders, in the order of the folders and their names."""
        for folder in folders:
            yield from (f"{folder}/{name}" for name in self.names(folder) if name.endswith(ending))

    def inside(self, path: str) -> str | None:
        """The path without links, all of it below the root; None when they go round in circles."""
        done, left, links = "", [part for part in path.split("/") if part][::-1], 0
        while left:
            part = left.pop()
            if part in (".", ".."):
                done = done.rpartition("/")[0] if part == ".." else done
                continue
            target = self._host.link(f"{done}/{part}")
            if target is None:
                done = f"{done}/{part}"
                continue
            links += 1
            if links > MOST_LINKS:
                return None
            done = "" if target.startswith("/") else done
            left += [one for one in target.split("/") if one][::-1]
        return done or "/"


def reason_of(fault: OSError) -> str:
    """Why something could not be read, and what helps."""
    if fault.errno in (errno.EACCES, errno.EPERM):
        return "only root may; run it with sudo"
    return (fault.strerror or str(fault)).lower()
