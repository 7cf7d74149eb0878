"""How is a device node kept where nobody may make one? As a small text file that `stat` shows as a character device."""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, replace

from tests.fakes.tree import HIDDEN, Tree

OPEN = f"{HIDDEN}/open"  # PID/FD: a hard link to the node that the process has open, so that it outlives the name
_LAST_INODE = f"{HIDDEN}/last-inode"
NODE_DELAY = f"{HIDDEN}/node-delay"
MISC_MAJOR, GROUP_MAJOR, CDEV_MAJOR, ACCEL_MAJOR = 10, 511, 510, 261
_WIDTH = 80  # one write of one length: a reader sees the old text or the new


@dataclass(frozen=True)
class Record:
    """What the file of a node says.

    `inode`: never one that was used before, as in devtmpfs. `since`: on the monotonic clock; not there before.
    """

    major: int
    minor: int
    mode: int
    inode: int
    uid: int = 0
    gid: int = 0
    since: float = 0.0

    def __str__(self) -> str:
        fields = f"{self.major} {self.minor} {self.mode:o} {self.inode} {self.uid} {self.gid} {self.since:.3f}"
        return fields.ljust(_WIDTH - 1) + "\n"


def parse(text: str) -> Record:
    """The record in a node's file."""
    major, minor, mode, inode, uid, gid, since = text.split()
    return Record(int(major), int(minor), int(mode, 8), int(inode), int(uid), int(gid), float(since))


def make(tree: Tree, path: str, major: int, minor: int, mode: int = 0o600) -> None:
    """A new node, as devtmpfs makes it: a new inode, root's. It may be late (`NODE_DELAY`)."""
    delay = float(tree.text(NODE_DELAY) or 0)
    tree.remove(path)
    inode = int(tree.text(_LAST_INODE) or 100) + 1
    tree.put(_LAST_INODE, str(inode))
    tree.put(path, str(Record(major, minor, mode, inode, since=time.monotonic() + delay if delay else 0.0)))


def remove(tree: Tree, path: str) -> None:
    """The name goes; who has it open keeps it, and /proc says so."""
    try:
        inode = os.lstat(tree.at(path)).st_ino
    except FileNotFoundError:
        return
    for pid in tree.names(OPEN):
        for number in tree.names(f"{OPEN}/{pid}"):
            if os.lstat(tree.at(f"{OPEN}/{pid}/{number}")).st_ino == inode:
                shown = tree.at(f"/proc/{pid}/fd/{number}")
                os.unlink(shown)
                os.symlink(f"{path} (deleted)", shown)
    tree.remove(path)


def look(place: str) -> os.stat_result | None:
    """What `stat` shows of a node's file; None when there is no node (yet). Other files are shown as they are."""
    try:
        found = os.stat(place, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            return found
        with open(place, encoding="utf-8") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(text) != _WIDTH:  # an ordinary file
        return found
    record = parse(text)
    if record.since > time.monotonic():
        return None
    shown = (stat.S_IFCHR | record.mode, record.inode, found.st_dev, found.st_nlink, record.uid, record.gid, 0,
             found.st_atime, record.since, found.st_ctime)  # fmt: skip
    return os.stat_result(shown, {"st_rdev": os.makedev(record.major, record.minor)})


def set_access(place: str, mode: int, uid: int, gid: int) -> None:
    """Give the node behind a file another owner and mode; the inode stays. Raises OSError as chmod would."""
    descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    try:
        record = parse(os.pread(descriptor, _WIDTH, 0).decode())
        if record.since > time.monotonic():
            raise FileNotFoundError(place)
        os.pwrite(descriptor, str(replace(record, mode=mode, uid=uid, gid=gid)).encode(), 0)
    finally:
        os.close(descriptor)


def free_minor(tree: Tree, major: int, paths: list[str]) -> int:
    """The lowest minor that no node has, of those with a name and those that are only open."""
    opened = [f"{OPEN}/{pid}/{number}" for pid in tree.names(OPEN) for number in tree.names(f"{OPEN}/{pid}")]
    taken = set()
    for path in (*paths, *opened):
        text = tree.text(path)
        if text is not None and len(text) == _WIDTH - 1 and (record := parse(text)).major == major:
            taken.add(record.minor)
    return min(set(range(len(taken) + 1)) - taken)
