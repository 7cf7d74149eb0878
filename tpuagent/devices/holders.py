"""Which processes hold a TPU function? Hands: reads /proc.

Found by comparing device numbers, never by opening a node: a group has one opener, and a probing open could make a
workload that is just starting fail.
"""

from __future__ import annotations

import os

from tpuagent.devices.pci import Address
from tpuagent.host import Host
from tpuagent.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_COMMAND_LIMIT = 80
# A device obtained from its group is an anonymous inode; which device, the kernel does not say.
_ANONYMOUS_DEVICE = "anon_inode:[vfio-device]"
_CONTAINER = "/dev/vfio/vfio"


@dataclass(frozen=True)
class Holder:
    """A process that has a function open."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


def find_holders(host: Host, numbers: Mapping[Address, frozenset[int]]) -> dict[Address, tuple[Holder, ...]]:
    """For each function, who holds one of its device numbers.

    A process with an open VFIO device but no group or device node (it closed the group's descriptor, which the device
    keeps alive) may hold any function for which nobody else is found, and is listed there.
    Processes that the caller may not look into are passed over; root sees all.
    """
    known: dict[Address, list[Holder]] = {address: [] for address in numbers}
    unplaced: list[Holder] = []
    for pid in host.processes():
        if pid == os.getpid():
            continue
        opened, anonymous = _opened(host, pid)
        held = [address for address, mine in numbers.items() if mine & opened]
        if not held and not anonymous:
            continue
        holder = Holder(pid, _command(host, pid))
        for address in held:
            known[address].append(holder)
        if not held:
            unplaced.append(holder)
    return {address: tuple(holders or unplaced) for address, holders in known.items()}


def _opened(host: Host, pid: int) -> tuple[frozenset[int], bool]:
    """The device numbers that a process has open, and whether it has VFIO devices without any group or device node."""
    numbers: set[int] = set()
    anonymous = placed = False
    folder = f"/proc/{pid}/fd"
    try:
        for name in host.names(folder):
            target = host.link(f"{folder}/{name}") or ""
            if target == _ANONYMOUS_DEVICE:
                anonymous = True
            elif target.startswith("/dev/") and (found := host.stat(f"{folder}/{name}", follow=True)):
                numbers.add(found.st_rdev)
                placed |= target.startswith("/dev/vfio/") and target != _CONTAINER
    except PermissionError:
        pass
    return frozenset(numbers), anonymous and not placed


def _command(host: Host, pid: int) -> str:
    """The command line, one line, cut; the kernel's short name for a process without one."""
    line = (host.read(f"/proc/{pid}/cmdline") or "").replace("\0", " ").strip()
    return (
        "".join(c if c.isprintable() else "?" for c in line)[:_COMMAND_LIMIT] or host.read(f"/proc/{pid}/comm") or "?"
    )
