"""What does a test need of a kernel, be it a real one or not? The protocol, and what both implementations share."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from tests.fakes.processes import By
from tpuagent.devices.monitor import Monitor
from tpuagent.host import Host

REAL = os.environ.get("TPUAGENT_CONTRACT") == "real"
DEVICES = "/sys/bus/pci/devices"
DRIVERS = "/sys/bus/pci/drivers"
VFIO = "vfio-pci"
# A driver that knows no ids and so takes a function only by its override.
FOREIGN = "pci-stub"
LIMIT_S = 60.0  # for what must happen; an emulated guest is slow
MOMENT_S = 2.0 if REAL else 0.3  # for what must not happen


class Kernel(Protocol):
    """A machine with at least two functions in groups of their own, with vfio-pci and pci-stub loaded."""

    @property
    def host(self) -> Host:
        """The machine."""

    @property
    def functions(self) -> tuple[str, ...]:
        """The addresses of its TPU functions."""

    @property
    def older(self) -> bool:
        """Whether it is like Linux 6.1 and not like 6.12, as far as waiting for a held device goes.

        On the older one reading `uevent` and `driver_override` waits for the device's lock, and the device in
        `vfio-dev` stays until the end.
        """

    def hold(self, address: str, by: By) -> AbstractContextManager[int]:
        """A process that holds a function until the block ends; its pid. Raises OSError as the open would."""

    def open_monitor(self) -> Monitor:
        """The kernel's events."""


def attempt(host: Host, path: str, text: str) -> int:
    """Write to an attribute; the errno, or 0."""
    try:
        host.write_attribute(path, text)
    except OSError as fault:
        return fault.errno or -1
    return 0


def set_override(host: Host, address: str, driver: str | None) -> int:
    """Set or clear the driver override; the errno, or 0."""
    return attempt(host, f"{DEVICES}/{address}/driver_override", f"{driver or ''}\n")


def bind(host: Host, address: str, driver: str = VFIO) -> int:
    """Write a function's address to a driver's `bind`; the errno, or 0."""
    return attempt(host, f"{DRIVERS}/{driver}/bind", address)


def unbind(host: Host, address: str, driver: str = VFIO) -> int:
    """Write a function's address to a driver's `unbind`; the errno, or 0."""
    return attempt(host, f"{DRIVERS}/{driver}/unbind", address)


def take(host: Host, address: str, driver: str = VFIO) -> None:
    """Override and bind, which must succeed."""
    assert set_override(host, address, driver) == 0
    assert bind(host, address, driver) == 0


def driver_of(host: Host, address: str) -> str | None:
    """The driver that the function's link names."""
    link = host.link(f"{DEVICES}/{address}/driver")
    return link and link.rpartition("/")[2]


def override_of(host: Host, address: str) -> str | None:
    """The driver override; None when none is set."""
    text = host.read(f"{DEVICES}/{address}/driver_override")
    return None if text in {"(null)", ""} else text


def group_of(host: Host, address: str) -> str:
    """The name of the function's IOMMU group."""
    return str(host.link(f"{DEVICES}/{address}/iommu_group")).rpartition("/")[2]


def group_node(host: Host, address: str) -> str:
    """The path of the node that the function's group has while it is bound."""
    return f"/dev/vfio/{group_of(host, address)}"


@contextlib.contextmanager
def untouched(host: Host, address: str) -> Iterator[str]:
    """A function without driver and override, that is afterwards what it was before."""
    driver, override = driver_of(host, address), override_of(host, address)
    _bare(host, address)
    yield address
    _bare(host, address)
    if driver:
        take(host, address, driver)
    set_override(host, address, override)


def _bare(host: Host, address: str) -> None:
    if driver := driver_of(host, address):
        assert unbind(host, address, driver) == 0
    assert set_override(host, address, None) == 0


class Background:
    """A call that may wait in the kernel, made beside the test."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._result: object = None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        self._result = call()

    def waits(self) -> bool:
        """Whether it has not come back, and does not within a moment."""
        self._thread.join(MOMENT_S)
        return self._thread.is_alive()

    def result(self) -> object:
        """What it came back with."""
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "it still waits in the kernel"
        return self._result


def eventually(true: Callable[[], bool]) -> bool:
    """Whether something of which no event tells becomes true in time."""
    end = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
    return True
