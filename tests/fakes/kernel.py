"""How does the simulated kernel react to a write to sysfs? With the changes, the errnos and the events of a real one.

What it imitates was read in drivers/pci/pci-driver.c, drivers/base/{bus,dd,driver}.c and drivers/vfio, and is compared
with real kernels by tests/contract.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re

from tests.fakes import accel, faults, modules, uevents, vfio
from tests.fakes.tree import HIDDEN, Tree
from tests.fakes.vfio import BOUND, DEVICES, GROUPS

DRIVERS = "/sys/bus/pci/drivers"
KNOWN_IDS = f"{HIDDEN}/drivers"  # NAME: the ids that a driver knows, one a line
BUS = "/sys/devices/pci0000:00"
_PAGE = 4096
_OVERRIDE = re.compile(rf"{DEVICES}/([^/]+)/driver_override")
_DRIVER = re.compile(rf"{DRIVERS}/([^/]+)/(bind|unbind)")
_PARAMETER = re.compile(r"/sys/module/[^/]+/parameters/[^/]+")
LOCKED = re.compile(rf"{DEVICES}/([^/]+)/(?:uevent|driver_override)")
_TRUE, _FALSE = ("y", "Y", "1", "on"), ("n", "N", "0", "off")


class Kernel:
    """The reactions. Keeps nothing: all state is in the tree."""

    def __init__(self, root: str) -> None:
        self.tree = Tree(root)

    def write(self, path: str, text: str) -> None:
        """One write to an attribute. Raises the OSError that a real kernel would answer."""
        if faults.meet(self.tree, path, text):
            return
        place = self.tree.at(path)
        if not os.stat(place).st_mode & 0o222:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        if not text:
            return  # sysfs does not even call the attribute
        if found := _OVERRIDE.fullmatch(path):
            self._set_override(found[1], text)
        elif found := _DRIVER.fullmatch(path):
            act = self.bind if found[2] == "bind" else self.unbind
            act(found[1], text.removesuffix("\n"))
        elif path == "/sys/bus/pci/drivers_probe":
            self._probe_for(text.removesuffix("\n"))
        elif _PARAMETER.fullmatch(path):
            self._set_parameter(path, text.removesuffix("\n"))
        else:
            self.tree.put(path, text.removesuffix("\n") + "\n")

    # Drivers ------------------------------------------------------------------------------------------------------

    def bind(self, driver: str, address: str) -> None:
        """Give a function to a driver."""
        if not self._is_there(address) or not self._matches(driver, address):
            raise _refusal(errno.ENODEV)
        with self.tree.lock(address), self.tree.lock():
            if not self._is_there(address):
                raise _refusal(errno.ENODEV)
            if self._driver(address):
                raise _refusal(errno.EBUSY)
            self._probe(driver, address)

    def unbind(self, driver: str, address: str) -> None:
        """Take a function from a driver; waits until the last user of the device is gone."""
        if self._driver(address) != driver:
            raise _refusal(errno.ENODEV)
        with self.tree.lock(address):
            self._detach(address, driver)

    def add(self, address: str) -> None:
        """A function has been discovered: tell it, and look for a driver."""
        with self.tree.lock(address):
            with self.tree.lock():
                uevents.send(self.tree, "pci", "add", address)
            self._attach(address)

    def remove(self, address: str) -> None:
        """A function is pulled out: its driver leaves it first, which may wait."""
        with self.tree.lock(address):
            if driver := self._driver(address):
                self._detach(address, driver)
            with self.tree.lock():
                folder = f"{BUS}/{address}"
                group = self.tree.base(f"{DEVICES}/{address}/iommu_group")
                self.tree.remove(f"{GROUPS}/{group}/devices/{address}")
                if group and not self.tree.names(f"{GROUPS}/{group}/devices"):
                    self.tree.remove(f"{GROUPS}/{group}")
                self.tree.remove(f"{DEVICES}/{address}")
                self.tree.remove(folder)
                uevents.send(self.tree, "pci", "remove", address)

    def _detach(self, address: str, driver: str) -> None:
        with contextlib.ExitStack() as stack:
            with self.tree.lock():
                if self._driver(address) != driver:
                    return  # another unbind came first; the kernel calls that success
                self.tree.remove(f"{DRIVERS}/{driver}/{address}")
                self.tree.remove(f"{DEVICES}/{address}/driver")
                if driver == "vfio-pci" and not modules.is_older_than(self.tree, 6, 12):
                    vfio.close_door(self.tree, address)
                told = stack.enter_context(vfio.awaited_release(self.tree, address))
            vfio.wait_released(self.tree, address, told)
        with self.tree.lock():
            if driver == "vfio-pci":
                vfio.leave(self.tree, address)
            accel.leave(self.tree, address)
            self.tree.remove(f"{BOUND}/{address}")
            uevents.send(self.tree, "pci", "unbind", address)

    def _probe_for(self, address: str) -> None:
        if not self._is_there(address):
            raise _refusal(errno.ENODEV)
        with self.tree.lock(address):
            self._attach(address)

    def _attach(self, address: str) -> None:
        """Offer a function to every driver that matches. That none takes it is no error."""
        with self.tree.lock():
            for driver in self.tree.names(DRIVERS):
                if not self._driver(address) and self._matches(driver, address):
                    with contextlib.suppress(OSError):
                        self._probe(driver, address)

    def _probe(self, driver: str, address: str) -> None:
        # The link is there before what the driver makes, and goes again when the driver fails.
        self.tree.link(f"{DEVICES}/{address}/driver", f"{DRIVERS}/{driver}")
        try:
            if driver == "vfio-pci":
                vfio.join(self.tree, address)
            accel.join(self.tree, driver, address)
        except OSError:
            self.tree.remove(f"{DEVICES}/{address}/driver")
            raise
        self.tree.put(f"{BOUND}/{address}", driver)
        self.tree.link(f"{DRIVERS}/{driver}/{address}", f"{DEVICES}/{address}")
        uevents.send(self.tree, "pci", "bind", address)

    def _matches(self, driver: str, address: str) -> bool:
        override = self.tree.text(f"{DEVICES}/{address}/driver_override")
        if override not in {None, "(null)"}:
            return override == driver
        names = ("vendor", "device", "subsystem_vendor", "subsystem_device")
        ids = ((self.tree.text(f"{DEVICES}/{address}/{name}") or "").removeprefix("0x") for name in names)
        return ":".join(ids) in (self.tree.text(f"{KNOWN_IDS}/{driver}") or "").split()

    def _driver(self, address: str) -> str | None:
        return self.tree.text(f"{BOUND}/{address}")

    def _is_there(self, address: str) -> bool:
        return bool(address) and self.tree.exists(f"{DEVICES}/{address}/vendor")

    # Values -------------------------------------------------------------------------------------------------------

    def _set_override(self, address: str, text: str) -> None:
        text = text[:_PAGE]  # what one write can bring
        if len(text) >= _PAGE - 1:
            raise _refusal(errno.EINVAL)
        name = text.partition("\n")[0]
        # Newer kernels have a lock of its own for the override.
        lock = address if modules.is_older_than(self.tree, 6, 12) else f"{address}-override"
        with self.tree.lock(lock):
            self.tree.put(f"{DEVICES}/{address}/driver_override", f"{name or '(null)'}\n")

    def _set_parameter(self, path: str, text: str) -> None:
        if text not in _TRUE + _FALSE:
            raise _refusal(errno.EINVAL)
        self.tree.put(path, "Y\n" if text in _TRUE else "N\n")


def _refusal(number: int) -> OSError:
    return OSError(number, os.strerror(number))
