"""What is simulated although no kernel at hand shows it? Device cdevs, no-IOMMU mode, several functions in a group."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

import pytest

from tests.contract.kernel import DEVICES, REAL, Background, bind, driver_of, eventually, take, unbind
from tests.fakes.machine import Machine

pytestmark = pytest.mark.skipif(REAL, reason="Debian's kernels have neither device cdevs nor no-IOMMU mode")
SWITCH = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"


def test_without_an_iommu_vfio_pci_refuses_the_function_and_pci_stub_does_not(tmp_path: Path) -> None:
    machine = Machine.create(str(tmp_path), iommu=False)
    function = machine.add_function("v6e")
    machine.host.load_module("pci-stub")
    machine.write(f"{DEVICES}/{function}/driver_override", "vfio-pci\n")
    assert bind(machine.host, function) == errno.EINVAL
    assert driver_of(machine.host, function) is None
    take(machine.host, function, "pci-stub")


def test_in_no_iommu_mode_the_group_comes_with_the_bind_and_goes_with_the_unbind(tmp_path: Path) -> None:
    machine = Machine.create(str(tmp_path), iommu=False, no_iommu_mode=True)
    function = machine.add_function("v6e")
    machine.write(SWITCH, "1")
    assert machine.host.link(f"{DEVICES}/{function}/iommu_group") is None
    take(machine.host, function)
    assert machine.host.read(f"{DEVICES}/{function}/iommu_group/name") == "vfio-noiommu"
    assert machine.mode("/dev/vfio/noiommu-0") == 0o600
    assert unbind(machine.host, function) == 0
    assert machine.host.link(f"{DEVICES}/{function}/iommu_group") is None
    assert not machine.host.exists("/dev/vfio/noiommu-0")


def test_a_kernel_with_iommufd_makes_a_node_for_each_device(tmp_path: Path) -> None:
    machine = Machine.create(str(tmp_path), cdevs=True)
    function = machine.add_function("v6e")
    take(machine.host, function)
    (name,) = machine.host.names(f"{DEVICES}/{function}/vfio-dev")
    found = machine.host.stat(f"/dev/vfio/devices/{name}")
    assert found
    assert stat.S_ISCHR(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert machine.mode("/dev/iommu") == 0o600


def test_a_held_cdev_lets_an_unbind_wait_as_a_device_of_a_group_does(tmp_path: Path) -> None:
    machine = Machine.create(str(tmp_path), cdevs=True)
    function = machine.add_function("v6e")
    take(machine.host, function)
    holder = machine.hold(function, by="cdev")
    unbinding = Background(lambda: unbind(machine.host, function))
    assert eventually(lambda: driver_of(machine.host, function) is None)
    assert unbinding.waits()
    machine.let_go(holder)
    assert unbinding.result() == 0


def test_the_node_of_a_group_stays_while_another_function_of_it_is_bound(tmp_path: Path) -> None:
    machine = Machine.create(str(tmp_path))
    first, second = (machine.add_function("tpu7x", group="7") for _ in range(2))
    take(machine.host, first)
    take(machine.host, second)
    assert unbind(machine.host, first) == 0
    assert machine.host.exists("/dev/vfio/7")
    assert unbind(machine.host, second) == 0
    assert not machine.host.exists("/dev/vfio/7")


def test_a_bridge_is_no_function_that_vfio_pci_takes(tmp_path: Path) -> None:
    machine = Machine.create(str(tmp_path))
    bridge = machine.add_other("bridge")
    machine.write(f"{DEVICES}/{bridge}/driver_override", "vfio-pci\n")
    assert bind(machine.host, bridge) == errno.EINVAL


def test_what_is_plugged_in_goes_to_the_driver_that_knows_it_and_what_is_pulled_out_leaves_nothing(
    tmp_path: Path,
) -> None:
    machine = Machine.create(str(tmp_path))
    machine.add_driver("old", "v6e")
    function = machine.plug("v6e", group="9")
    assert driver_of(machine.host, function) == "old"
    machine.unplug(function)
    assert machine.host.names(DEVICES) == []
    assert machine.host.names("/sys/kernel/iommu_groups") == []
    assert function not in machine.host.names("/sys/bus/pci/drivers/old")
