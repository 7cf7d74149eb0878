"""When should the bus be looked at again? Hands: the kernel's events by way of udev; the only user of pyudev.

An event is a hint and sysfs is the truth, so nothing of an event is kept but its action and name for the log. Devices
are never enumerated here: pyudev reads `uevent`, which can hang while an unbind waits in the kernel.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Protocol

import pyudev

from tpuagent.values import dataclass

SUBSYSTEMS = ("pci", "vfio", "vfio-dev", "accel", "misc")
# A thousand functions that change at once fit; the kernel doubles it for its own bookkeeping. Root may exceed rmem_max.
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Event:
    """Something happened to a device of one of the subsystems."""

    subsystem: str
    action: str
    name: str


class MonitorLost(Exception):
    """Events were lost, or no more will come: open a new monitor, then look at everything again."""


class Monitor(Protocol):
    """A source of events that can be waited for by its descriptor."""

    def fileno(self) -> int:
        """Readable when there are events."""

    def receive(self) -> Sequence[Event]:
        """The events that are there now, without waiting. MonitorLost when it cannot go on."""

    def close(self) -> None:
        """Stop listening."""


class UdevMonitor:
    """The events twice: from the kernel, to lose no time, and from udev when its rules have done their part.

    A node's mode is final only then; what udev changes after the first look is put right by the second.
    """

    def __init__(self) -> None:
        context = pyudev.Context()
        self._monitors = [pyudev.Monitor.from_netlink(context, source=source) for source in ("kernel", "udev")]
        self._epoll = select.epoll()
        for monitor in self._monitors:
            for subsystem in SUBSYSTEMS:
                monitor.filter_by(subsystem)
            monitor.set_receive_buffer_size(RECEIVE_BUFFER_BYTES)
            monitor.start()
            self._epoll.register(monitor.fileno(), select.EPOLLIN)

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._epoll.fileno()

    def receive(self) -> Sequence[Event]:
        """The events that are there now. MonitorLost on any error: after ENOBUFS every further read fails as well."""
        events = []
        try:
            for monitor in self._monitors:
                while (device := monitor.poll(timeout=0)) is not None:
                    events.append(Event(device.subsystem or "", device.action or "", device.sys_name))
        except OSError as fault:
            raise MonitorLost(str(fault)) from fault
        return events

    def close(self) -> None:
        """Let the sockets go with the objects that own them."""
        self._epoll.close()
        self._monitors.clear()
