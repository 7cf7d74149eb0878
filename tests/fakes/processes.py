"""Which processes does the simulated machine have, and what do they hold? Workloads that use a function."""

from __future__ import annotations

import errno
import os
from typing import Literal

from tests.fakes import nodes, vfio
from tests.fakes.tree import Tree

# How a function is held: with the group's node open; with a device obtained from the group, as a workload does; the
# same after closing the group's node, which the device keeps alive; or with the device's own node.
By = Literal["group", "device", "device-only", "cdev"]
# Above the kernel's own limit: never the pid of a process that really is there.
FIRST_PID = 5_000_001
TRAINING = "python3 train.py"
_CONTAINER = "/dev/vfio/vfio"
_ANONYMOUS = "anon_inode:[vfio-device]"


class Processes:
    """The processes of the machine in a folder, as /proc shows them."""

    def __init__(self, root: str) -> None:
        self.tree = Tree(root)

    def start_process(self, command: str, pid: int | None = None) -> int:
        """A process with this command line; its pid."""
        pid = pid or FIRST_PID + len(self.tree.names("/proc"))
        self.tree.put(f"/proc/{pid}/cmdline", "\0".join([*command.split(), ""]))
        self.tree.put(f"/proc/{pid}/comm", os.path.basename(command.split(maxsplit=1)[0])[:15] + "\n")
        self.tree.folder(f"/proc/{pid}/fd")
        return pid

    def hold(self, address: str, *, command: str = TRAINING, by: By = "device", pid: int | None = None) -> int:
        """A process that holds a function; its pid. A group has one opener: EBUSY for a second one."""
        with self.tree.lock():
            pid = self.start_process(command, pid)
            if by == "cdev":
                for name in self.tree.names(f"{vfio.DEVICES}/{address}/vfio-dev"):
                    self._open(pid, f"/dev/vfio/devices/{name}")
            else:
                group = vfio.group_node(self.tree, address)
                if self._is_open(group):
                    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), group)
                self._open(pid, _CONTAINER)
                if by != "device-only":
                    self._open(pid, group)
                if by != "group":
                    self._open_anonymous(pid)
            if by != "group":
                self.tree.put(f"{vfio.USERS}/{address}/{pid}", "")
        return pid

    def open_node(self, path: str, *, command: str = TRAINING) -> int:
        """A process that has any node open; its pid."""
        with self.tree.lock():
            pid = self.start_process(command)
            self._open(pid, path)
        return pid

    def let_go(self, pid: int) -> None:
        """The process ends; an unbind that waits for it goes on."""
        with self.tree.lock():
            self.tree.remove(f"/proc/{pid}")
            self.tree.remove(f"{nodes.OPEN}/{pid}")
            for address in self.tree.names(vfio.USERS):
                self.tree.remove(f"{vfio.USERS}/{address}/{pid}")
                vfio.tell_released(self.tree, address)

    def _open(self, pid: int, path: str) -> None:
        number = self._next_descriptor(pid)
        self.tree.folder(f"{nodes.OPEN}/{pid}")
        os.link(self.tree.at(path), self.tree.at(f"{nodes.OPEN}/{pid}/{number}"))
        os.symlink(path, self.tree.at(f"/proc/{pid}/fd/{number}"))

    def _open_anonymous(self, pid: int) -> None:
        number = self._next_descriptor(pid)
        self.tree.put(f"{nodes.OPEN}/{pid}/{number}", "")
        os.symlink(_ANONYMOUS, self.tree.at(f"/proc/{pid}/fd/{number}"))

    def _next_descriptor(self, pid: int) -> int:
        return 3 + len(self.tree.names(f"/proc/{pid}/fd"))

    def _is_open(self, path: str) -> bool:
        inode = os.lstat(self.tree.at(path)).st_ino
        return any(
            os.lstat(self.tree.at(f"{nodes.OPEN}/{pid}/{number}")).st_ino == inode
            for pid in self.tree.names(nodes.OPEN)
            for number in self.tree.names(f"{nodes.OPEN}/{pid}")
        )
