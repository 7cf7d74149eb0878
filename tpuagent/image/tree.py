"""What is in an image that is not booted? Hands: a Host whose links never lead out of its root.

A link like /etc/resolv.conf -> /run/… is one of the image's. Read from outside it would lead to the builder's own
files, so every path is followed step by step inside the root, as the image would do it once booted.
"""

from __future__ import annotations

import errno
import os

from tpuagent.host import GONE, MOST_LINKS, Host


class Tree(Host):
    """A root folder."""

    def at(self, path: str) -> str:
        """Where a path really is: below the root, whatever the links in it say."""
        return self._inside(path, last=True)

    def link(self, path: str) -> str | None:
        """As Host.link: of the folders above the link only."""
        try:
            return os.readlink(self._inside(path, last=False))
        except OSError as fault:
            if fault.errno == errno.EINVAL or fault.errno in GONE:
                return None
            raise

    def stat(self, path: str, *, follow: bool = False) -> os.stat_result | None:
        """As Host.stat."""
        try:
            return os.lstat(self._inside(path, last=follow))
        except OSError as fault:
            if fault.errno in GONE:
                return None
            raise

    def group_id(self, name: str) -> int | None:
        """From the image's own /etc/group."""
        if name.isdecimal():
            return int(name)
        for line in (self.read("/etc/group") or "").splitlines():
            words = line.split(":")
            if words[0] == name and len(words) > 2 and words[2].isdecimal():  # noqa: PLR2004  (name, password, number)
                return int(words[2])
        return None

    def _inside(self, path: str, *, last: bool) -> str:
        waiting = [part for part in path.split("/") if part][::-1]
        done: list[str] = []
        links = 0
        while waiting:
            part = waiting.pop()
            if part == "..":
                done = done[:-1]  # above the root is the root
                continue
            if part == ".":
                continue
            here = "/".join([self.root.rstrip("/"), *done, part])
            if (waiting or last) and os.path.islink(here):
                links += 1
                if links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                target = os.readlink(here)
                done = [] if target.startswith("/") else done
                waiting += [step for step in target.split("/") if step][::-1]
                continue
            done.append(part)
        return "/".join([self.root.rstrip("/"), *done]) or "/"
