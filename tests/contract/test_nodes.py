"""Which device nodes come and go with a binding, and what are they at first?"""

from __future__ import annotations

import os
import stat

from tests.contract.kernel import (
    DEVICES,
    VFIO,
    Background,
    Kernel,
    attempt,
    bind,
    driver_of,
    group_node,
    group_of,
    set_override,
    take,
    unbind,
    untouched,
)
from tpuagent.devices.sysfs import look_at_node


def _found(kernel: Kernel, path: str) -> os.stat_result:
    found = kernel.host.stat(path)
    assert found, f"there is no {path}"
    return found


def test_a_bind_makes_a_node_for_the_group_that_only_root_may_open(kernel: Kernel, function: str) -> None:
    assert not kernel.host.exists(group_node(kernel.host, function))
    take(kernel.host, function)
    found = _found(kernel, group_node(kernel.host, function))
    assert stat.S_ISCHR(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert (found.st_uid, found.st_gid) == (0, 0)


def test_a_function_has_its_driver_before_its_group_has_a_node(kernel: Kernel, function: str) -> None:
    binding = Background(lambda: take(kernel.host, function))
    while not kernel.host.exists(group_node(kernel.host, function)):
        pass
    assert driver_of(kernel.host, function) == VFIO
    binding.result()


def test_a_node_stays_the_same_when_it_is_opened_to_users_and_is_another_after_a_rebind(
    kernel: Kernel, function: str
) -> None:
    path = group_node(kernel.host, function)
    take(kernel.host, function)
    first = look_at_node(kernel.host, path)
    kernel.host.set_access(path, 0o666, 0, 0)
    opened = look_at_node(kernel.host, path)
    assert first
    assert opened
    assert opened.inode == first.inode
    assert unbind(kernel.host, function) == 0
    assert bind(kernel.host, function) == 0
    again = look_at_node(kernel.host, path)
    assert again
    assert again.inode != first.inode


def test_the_number_of_the_node_is_in_sysfs_and_is_not_the_number_of_the_group(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    number = _found(kernel, group_node(kernel.host, function)).st_rdev
    listed = kernel.host.read(f"/sys/class/vfio/{group_of(kernel.host, function)}/dev")
    assert listed == f"{os.major(number)}:{os.minor(number)}"
    assert os.minor(number) != int(group_of(kernel.host, function))


def test_two_groups_have_nodes_with_two_numbers(kernel: Kernel, function: str) -> None:
    other = next(address for address in kernel.functions if address != function)
    with untouched(kernel.host, other):
        take(kernel.host, function)
        take(kernel.host, other)
        nodes = [_found(kernel, group_node(kernel.host, address)) for address in (function, other)]
        assert nodes[0].st_rdev != nodes[1].st_rdev


def test_an_unbind_removes_the_node(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    assert unbind(kernel.host, function) == 0
    assert not kernel.host.exists(group_node(kernel.host, function))
    assert group_of(kernel.host, function) not in kernel.host.names("/sys/class/vfio")


def test_a_mode_lasts_until_a_rebind_makes_a_new_node(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    node = group_node(kernel.host, function)
    kernel.host.set_access(node, 0o666, 0, 0)
    opened = _found(kernel, node)
    assert stat.S_IMODE(opened.st_mode) == 0o666
    assert unbind(kernel.host, function) == 0
    assert bind(kernel.host, function) == 0
    again = _found(kernel, node)
    assert stat.S_IMODE(again.st_mode) == 0o600
    assert again.st_ino != opened.st_ino


def test_a_bound_function_has_a_vfio_device_and_a_node_of_its_own_only_if_sysfs_has_its_number(
    kernel: Kernel, function: str
) -> None:
    folder = f"{DEVICES}/{function}/vfio-dev"
    assert kernel.host.names(folder) == []
    take(kernel.host, function)
    (name,) = kernel.host.names(folder)
    has_number = kernel.host.exists(f"{folder}/{name}/dev")
    assert kernel.host.exists(f"/dev/vfio/devices/{name}") == has_number
    assert unbind(kernel.host, function) == 0
    assert kernel.host.names(folder) == []


def test_the_container_node_is_open_to_all(kernel: Kernel) -> None:
    found = _found(kernel, "/dev/vfio/vfio")
    assert stat.S_IMODE(found.st_mode) == 0o666
    assert (os.major(found.st_rdev), os.minor(found.st_rdev)) == (10, 196)


def test_another_driver_makes_no_node(kernel: Kernel, function: str) -> None:
    take(kernel.host, function, "pci-stub")
    assert not kernel.host.exists(group_node(kernel.host, function))
    assert set_override(kernel.host, function, None) == 0
    assert attempt(kernel.host, "/sys/bus/pci/drivers/pci-stub/unbind", function) == 0
