"""This machine's own kernel, as the contract sees it. For a guest, as root, with the agent stopped."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.contract.kernel import DEVICES, group_node
from tests.fakes.processes import By
from tpuagent.devices import sysfs
from tpuagent.devices.monitor import Monitor, UdevMonitor
from tpuagent.devices.pci import GENERATIONS
from tpuagent.host import Host

_HOLDER = Path(__file__).with_name("holder.py")


class RealKernel:
    """The kernel below the test."""

    def __init__(self) -> None:
        self.host = Host()
        for module in ("vfio-pci", "pci-stub"):
            self.host.load_module(module)
        self.functions = tuple(str(function.address) for function in sysfs.scan(self.host, GENERATIONS))
        release = self.host.kernel_release().split(".")
        self.older = (int(release[0]), int(release[1])) < (6, 12)

    @contextlib.contextmanager
    def hold(self, address: str, by: By) -> Iterator[int]:
        """A child that does what a workload does."""
        node = group_node(self.host, address)
        argv = [sys.executable, "-I", str(_HOLDER), node, address, by]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdin
            assert child.stdout
            said = child.stdout.readline().strip()
            if said.isdecimal():
                raise OSError(int(said), os.strerror(int(said)), node)
            assert said == "held", f"cannot hold {DEVICES}/{address}"
            try:
                yield child.pid
            finally:
                child.stdin.close()
                child.wait()

    def open_monitor(self) -> Monitor:
        """The events from now on: udev is through with those of the test before."""
        subprocess.run(["udevadm", "settle", "--timeout=30"], check=True)
        return UdevMonitor()
