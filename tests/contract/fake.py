"""The simulated kernel, as the contract sees it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tests.fakes import modules
from tests.fakes.machine import Machine
from tests.fakes.processes import By
from tests.fakes.uevents import FakeMonitor
from tpuagent.devices.monitor import Monitor


class FakeKernel:
    """A kernel in a folder."""

    def __init__(self, folder: str, release: str) -> None:
        self.older = release == "6.1"
        self.machine = Machine.create(folder, release=f"{release}.0-fake")
        self.host = self.machine.host
        modules.load(self.machine.tree, "pci-stub")
        kinds = {"0000:00:08.0": "v5p", "0000:00:09.0": "v6e", "0000:00:0a.0": "tpu7x"}  # an address with a letter
        self.functions = tuple(self.machine.add_function(kind, address=address) for address, kind in kinds.items())

    @contextlib.contextmanager
    def hold(self, address: str, by: By) -> Iterator[int]:
        """A process of the simulated machine."""
        pid = self.machine.hold(address, by=by)
        try:
            yield pid
        finally:
            self.machine.let_go(pid)

    def open_monitor(self) -> Monitor:
        """The simulated events."""
        return FakeMonitor(self.machine.root)
