"""What happens to a function that a process has open?"""

from __future__ import annotations

import errno
from functools import partial

import pytest

from tests.contract.kernel import (
    DEVICES,
    VFIO,
    Background,
    Kernel,
    attempt,
    bind,
    driver_of,
    eventually,
    group_node,
    set_override,
    take,
    unbind,
)
from tests.fakes.processes import By


def test_a_group_has_one_opener(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    with kernel.hold(function, "group"):
        with pytest.raises(OSError, match="busy") as refused, kernel.hold(function, "group"):
            pass
        assert refused.value.errno == errno.EBUSY


def test_the_holder_of_a_device_shows_the_group_the_container_and_the_device(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    node = group_node(kernel.host, function)
    with kernel.hold(function, "device") as pid:
        assert {"/dev/vfio/vfio", node, "anon_inode:[vfio-device]"} <= _opened(kernel, pid)
        mine = kernel.host.stat(node)
        assert mine
        assert mine.st_rdev in _numbers(kernel, pid)


def test_with_only_the_group_open_an_unbind_does_not_wait_and_the_node_goes(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    node = group_node(kernel.host, function)
    with kernel.hold(function, "group") as pid:
        assert Background(lambda: unbind(kernel.host, function)).result() == 0
        assert not kernel.host.exists(node)
        assert f"{node} (deleted)" in _opened(kernel, pid)


def test_a_node_that_is_open_without_its_name_keeps_its_number_from_the_next_node(
    kernel: Kernel, function: str
) -> None:
    take(kernel.host, function)
    node = group_node(kernel.host, function)
    with kernel.hold(function, "group") as pid:
        assert unbind(kernel.host, function) == 0
        assert bind(kernel.host, function) == 0
        new = kernel.host.stat(node)
        assert new
        assert new.st_rdev not in _numbers(kernel, pid)


@pytest.mark.parametrize("by", ["device", "device-only"])
def test_with_the_device_open_an_unbind_waits_until_it_is_closed(kernel: Kernel, function: str, by: By) -> None:
    take(kernel.host, function)
    node = group_node(kernel.host, function)
    with kernel.hold(function, by):
        unbinding = Background(lambda: unbind(kernel.host, function))
        assert eventually(lambda: driver_of(kernel.host, function) is None)
        assert unbinding.waits()
        assert kernel.host.exists(node)
        assert bool(kernel.host.names(f"{DEVICES}/{function}/vfio-dev")) == kernel.older
    assert unbinding.result() == 0
    assert not kernel.host.exists(node)


def test_while_an_unbind_waits_the_ids_and_links_can_still_be_read(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    with kernel.hold(function, "device"):
        unbinding = Background(lambda: unbind(kernel.host, function))
        assert eventually(lambda: driver_of(kernel.host, function) is None)
        paths = [f"{DEVICES}/{function}/{name}" for name in ("vendor", "device", "modalias", "class")]
        assert None not in [Background(partial(kernel.host.read, path)).result() for path in paths]
        assert Background(lambda: kernel.host.link(f"{DEVICES}/{function}/iommu_group")).result()
    assert unbinding.result() == 0


@pytest.mark.parametrize("name", ["uevent", "driver_override"])
def test_while_an_unbind_waits_reading_what_takes_the_device_s_lock_waits_as_well(
    kernel: Kernel, function: str, name: str
) -> None:
    take(kernel.host, function)
    with kernel.hold(function, "device"):
        unbinding = Background(lambda: unbind(kernel.host, function))
        assert eventually(lambda: driver_of(kernel.host, function) is None)
        assert unbinding.waits()
        reading = Background(lambda: kernel.host.read(f"{DEVICES}/{function}/{name}"))
        assert reading.waits() == kernel.older
    assert unbinding.result() == 0
    assert reading.result()


def test_while_an_unbind_waits_other_writes_to_the_function_wait_as_well(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    with kernel.hold(function, "device"):
        unbinding = Background(lambda: unbind(kernel.host, function))
        assert eventually(lambda: driver_of(kernel.host, function) is None)
        assert unbinding.waits()
        second = Background(lambda: unbind(kernel.host, function))
        assert second.waits()
        binding = Background(lambda: bind(kernel.host, function))
        assert binding.waits()
        overriding = Background(lambda: set_override(kernel.host, function, None))
        overriding_waits = overriding.waits()
    assert unbinding.result() == 0
    assert overriding.result() == 0
    assert second.result() == 0  # it finds nothing left to do, or undoes the bind
    assert binding.result() in {0, errno.ENODEV}
    assert overriding_waits == kernel.older


def test_while_one_function_waits_another_one_can_be_bound_and_unbound(kernel: Kernel, function: str) -> None:
    other = next(address for address in kernel.functions if address != function)
    take(kernel.host, function)
    with kernel.hold(function, "device"):
        unbinding = Background(lambda: unbind(kernel.host, function))
        assert eventually(lambda: driver_of(kernel.host, function) is None)
        before = driver_of(kernel.host, other)
        if before is None:
            take(kernel.host, other)
        assert driver_of(kernel.host, other) == VFIO
        if before is None:
            assert Background(lambda: unbind(kernel.host, other)).result() == 0
            assert attempt(kernel.host, f"{DEVICES}/{other}/driver_override", "\n") == 0
    assert unbinding.result() == 0


def _descriptors(kernel: Kernel, pid: int) -> list[str]:
    return [f"/proc/{pid}/fd/{name}" for name in kernel.host.names(f"/proc/{pid}/fd")]


def _numbers(kernel: Kernel, pid: int) -> set[int]:
    looks = [kernel.host.stat(path, follow=True) for path in _descriptors(kernel, pid)]
    return {found.st_rdev for found in looks if found}


def _opened(kernel: Kernel, pid: int) -> set[str]:
    return {kernel.host.link(path) or "" for path in _descriptors(kernel, pid)}
