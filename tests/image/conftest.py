"""A machine on which the check has nothing to tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.machine import Machine
from tests.image.trees import add_running, install, put


@pytest.fixture
def good(tmp_path: Path) -> Machine:
    """A machine that runs, with the package installed and everything right."""
    machine = Machine.create(str(tmp_path / "good"))
    install(machine.root)
    add_running(machine)
    put(machine.root, "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y\n")
    return machine
