"""A Host whose machine is a folder: the real code reads and writes, and only the kernel's part is played."""

from __future__ import annotations

import os
import re

from tests.fakes import modules, nodes
from tests.fakes.kernel import LOCKED, Kernel
from tpuagent.errors import ModuleUnavailable
from tpuagent.host import Host

_START = re.compile(r"/proc/\d+/stat")
_DESCRIPTOR = re.compile(r"/proc/(\d+)/fd/(\d+)")


class FakeHost(Host):
    """The machine in a folder. Any number of processes may have one each; needs no root."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._kernel = Kernel(root)

    def read(self, path: str, errors: str = "replace") -> str | None:
        """As on a real machine, where on older kernels some attributes take the device's lock."""
        found = LOCKED.fullmatch(path)
        if found and modules.is_older_than(self._kernel.tree, 6, 12):
            with self._kernel.tree.lock(found[1]):
                return super().read(path, errors)
        if _START.fullmatch(path) and not self.exists(path):
            return Host().read(path, errors)  # the agent and the commands are real processes
        return super().read(path, errors)

    def attribute(self, path: str) -> str | None:
        """In the folder an attribute is a file like any other."""
        return self.read(path)

    def stat(self, path: str, *, follow: bool = False) -> os.stat_result | None:
        """Nodes are shown as the character devices they stand for, also through /proc."""
        found = _DESCRIPTOR.fullmatch(path)
        if found and follow:
            return nodes.look(self.at(f"{nodes.OPEN}/{found[1]}/{found[2]}"))
        if path.startswith("/dev/"):
            return nodes.look(self.at(path))
        return super().stat(path, follow=follow)

    def require_root(self, what: str) -> None:
        """In a folder everybody is root."""

    def write_attribute(self, path: str, text: str) -> None:
        """Let the simulated kernel react."""
        self._kernel.write(path, text)

    def set_access(self, path: str, mode: int, uid: int, gid: int) -> None:
        """Change what the node's file says."""
        nodes.set_access(self.at(path), mode, uid, gid)

    def swap(self, path: str, data: bytes, mode: int, uid: int, gid: int) -> None:
        """As root does; without root, the files belong to whoever runs the test."""
        ids = (uid, gid) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
        super().swap(path, data, mode, *ids)

    def user_ids(self, name: str) -> tuple[int, int] | None:
        """As root sees it; without root, everybody is whoever runs the test."""
        return super().user_ids(name) and ((0, 0) if os.geteuid() == 0 else (os.geteuid(), os.getegid()))

    def load_module(self, name: str) -> None:
        """As modprobe would."""
        if not modules.load(self._kernel.tree, name):
            missing = f"modprobe: FATAL: Module {name} not found in directory /lib/modules/{self.kernel_release()}"
            raise ModuleUnavailable(f"load module {name}", missing)

    def kernel_release(self) -> str:
        """The machine's own."""
        return self.read(modules.RELEASE) or ""

    def machine(self) -> str:
        """The machine's own."""
        return self.read(modules.ARCHITECTURE) or ""

    def group_id(self, name: str) -> int | None:
        """From the machine's own /etc/group."""
        if name.isdecimal():
            return int(name)
        for line in (self.read("/etc/group") or "").splitlines():
            group, _, number, _ = line.split(":")
            if group == name:
                return int(number)
        return None
