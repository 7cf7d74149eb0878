"""Which events tell of a change of a function's driver?"""

from __future__ import annotations

import select
from collections import Counter

import pytest

from tests.contract.fake import FakeKernel
from tests.contract.kernel import LIMIT_S, REAL, Kernel, attempt, bind, group_of, set_override, take, unbind
from tpuagent.devices.monitor import Event, Monitor, MonitorLost


def _until(monitor: Monitor, last: Event) -> list[Event]:
    """The events up to one."""
    seen: list[Event] = []
    while last not in seen:
        poll = select.poll()
        poll.register(monitor.fileno(), select.POLLIN)
        assert poll.poll(LIMIT_S * 1000), f"{last} did not come after {seen}"
        seen += monitor.receive()
    return [event for event in seen if event.subsystem in {"pci", "vfio", "vfio-dev"}]


def test_a_bind_and_an_unbind_tell_of_the_group_the_device_and_the_function(kernel: Kernel, function: str) -> None:
    group = group_of(kernel.host, function)
    monitor = kernel.open_monitor()
    take(kernel.host, function)
    (device,) = kernel.host.names(f"/sys/bus/pci/devices/{function}/vfio-dev")
    bound = _until(monitor, Event("pci", "bind", function))
    assert unbind(kernel.host, function) == 0
    unbound = _until(monitor, Event("pci", "unbind", function))
    monitor.close()
    # udev passes the events of different devices on in any order, so that the last one may not be seen here.
    assert set(bound + unbound) <= {
        Event("vfio", "add", group),
        Event("vfio-dev", "add", device),
        Event("pci", "bind", function),
        Event("vfio-dev", "remove", device),
        Event("vfio", "remove", group),
        Event("pci", "unbind", function),
    }
    assert max(Counter(bound + unbound).values()) <= 2, "once from the kernel, and once from udev"
    assert {event.subsystem for event in bound + unbound} >= {"pci", "vfio-dev"}


def test_what_changes_no_driver_tells_nothing(kernel: Kernel, function: str) -> None:
    monitor = kernel.open_monitor()
    assert set_override(kernel.host, function, "no-such-driver") == 0
    assert attempt(kernel.host, "/sys/bus/pci/drivers_probe", function) == 0
    assert bind(kernel.host, function) != 0
    take(kernel.host, function)
    seen = [event for event in _until(monitor, Event("pci", "bind", function)) if event.subsystem == "pci"]
    monitor.close()
    assert set(seen) == {Event("pci", "bind", function)}


def test_a_listener_that_does_not_read_loses_events_and_is_told_each_time(kernel: Kernel, function: str) -> None:
    if REAL:
        pytest.skip("filling the real buffer takes thousands of events")
    assert isinstance(kernel, FakeKernel)
    monitor = kernel.open_monitor()
    take(kernel.host, function)
    kernel.machine.lose_events()
    for _ in range(2):
        with pytest.raises(MonitorLost):
            monitor.receive()
    monitor.close()
