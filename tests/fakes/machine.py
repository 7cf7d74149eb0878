"""How does a test build a machine with TPU functions, and what can the world do to it? Hands outside the kernel."""

from __future__ import annotations

import contextlib
from typing import Literal

from tests.fakes import accel, faults, modules, nodes, uevents, vfio
from tests.fakes.host import FakeHost
from tests.fakes.kernel import BUS, DRIVERS, KNOWN_IDS, Kernel
from tests.fakes.processes import Processes
from tests.fakes.tree import HIDDEN
from tests.fakes.vfio import DEVICES, GROUPS

# vendor, device, subsystem vendor, subsystem device, class. The network card and the disk are of the same vendor.
KINDS = {
    "v5p": ("1ae0", "0062", "1ae0", "00ad", "120000"),
    "v6e": ("1ae0", "006f", "1ae0", "00d1", "120000"),
    "tpu7x": ("1ae0", "0076", "1ae0", "00f2", "120000"),
    "network": ("1ae0", "0042", "1ae0", "0058", "020000"),
    "nvme": ("1ae0", "001f", "1ae0", "0000", "010802"),
    "bridge": ("8086", "3420", "8086", "0000", "060400"),
    "v4": ("1ae0", "005e", "1ae0", "0000", "120000"),
}
_IOMMU = f"{HIDDEN}/iommu"
ModuleState = Literal["loaded", "available", "builtin", "absent"]


def _alias(vendor: str, device: str, subsystem_vendor: str, subsystem_device: str, device_class: str) -> str:
    """What `modalias` reads: all ids and the three parts of the class, in upper case."""
    ids = f"v0000{vendor.upper()}d0000{device.upper()}sv0000{subsystem_vendor.upper()}sd0000{subsystem_device.upper()}"
    return f"pci:{ids}bc{device_class[:2]}sc{device_class[2:4]}i{device_class[4:]}\n"


class Machine(Processes):
    """The machine in a folder: `Machine.create` makes a new one, `Machine` opens one that is there."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.root = root
        self.host = FakeHost(root)
        self._kernel = Kernel(root)

    @classmethod
    def create(
        cls,
        root: str,
        *,
        iommu: bool = True,
        vfio_modules: ModuleState = "loaded",
        no_iommu_mode: bool = False,
        cdevs: bool = False,
        architecture: str = "x86_64",
        release: str | None = None,
    ) -> Machine:
        """A machine without functions. `no_iommu_mode`: the kernel has the switch. `cdevs`: it has iommufd.

        The kernel is like Debian 12's, 6.1, and like Debian 13's, 6.12, where older ones have no cdevs.
        """
        machine = cls(root)
        tree = machine.tree
        tree.put(modules.RELEASE, release or ("6.12.0-fake" if cdevs else "6.1.0-fake"))
        tree.put(modules.ARCHITECTURE, architecture)
        tree.put("/etc/group", "root:x:0:\ntpu:x:990:\n")
        tree.put("/sys/bus/pci/drivers_probe", "", 0o200)
        for folder in (DEVICES, DRIVERS, GROUPS, "/proc", "/run", "/dev"):
            tree.folder(folder)
        if iommu:
            tree.folder(_IOMMU)
        if cdevs:
            tree.put(vfio.CDEVS, "")
        names = ["vfio", "vfio_iommu_type1", "vfio_pci", *(["iommufd"] if cdevs else [])]
        for name in [] if vfio_modules == "absent" else names:
            tree.put(f"{modules.AVAILABLE}/{name}", "y" if no_iommu_mode else "")
        tree.put(f"{modules.AVAILABLE}/pci_stub", "")
        if vfio_modules in {"loaded", "builtin"}:
            for name in names:
                modules.load(tree, name)
        if vfio_modules == "builtin":
            machine._build_in(names)
        return machine

    def _build_in(self, names: list[str]) -> None:
        """Built-in code that has no parameters has no folder in /sys/module, and there is no file to load."""
        listed = "".join(f"kernel/drivers/vfio/{name.replace('_', '-')}.ko\n" for name in names)
        self.tree.put(f"/lib/modules/{self.host.kernel_release()}/modules.builtin", listed)
        for name in names:
            if not self.tree.exists(f"/sys/module/{name}/parameters"):
                self.tree.remove(f"/sys/module/{name}")

    # Functions ----------------------------------------------------------------------------------------------------

    def add_function(
        self, kind: str, *, driver: str | None = None, group: str | None = None, address: str | None = None
    ) -> str:
        """A function that is there at boot; its address. `driver`: one that knows its ids and has bound it.

        Each has a group of its own, by default, if the machine has an IOMMU.
        """
        address = address or self._free_address()
        self._describe(kind, address, group)
        if driver:
            self.add_driver(driver, kind)
            self._kernel.bind(driver, address)
        return address

    add_other = add_function

    def add_driver(self, driver: str, *kinds: str, makes_accel_nodes: bool = False) -> None:
        """A driver of the host's, that knows the ids of these kinds."""
        known = (self.tree.text(f"{KNOWN_IDS}/{driver}") or "").split()
        modules.add_driver(self.tree, driver, "\n".join({*known, *(":".join(KINDS[kind][:4]) for kind in kinds)}))
        if makes_accel_nodes:
            self.tree.put(f"{accel.DRIVERS}/{driver}", "")

    def plug(self, kind: str, *, group: str | None = None, address: str | None = None) -> str:
        """Plug a function in while the machine runs; its address."""
        address = address or self._free_address()
        with self.tree.lock():
            self._describe(kind, address, group)
        self._kernel.add(address)
        return address

    def unplug(self, address: str) -> None:
        """Pull a function out. Waits, as the kernel does, for who has the device open."""
        self._kernel.remove(address)

    def leave_ghost(self, address: str) -> None:
        """A name on the bus with nothing behind it: what a look sees that comes just too late."""
        self.tree.link(f"{DEVICES}/{address}", f"{BUS}/{address}")

    def _describe(self, kind: str, address: str, group: str | None) -> None:
        vendor, device, subsystem_vendor, subsystem_device, device_class = KINDS[kind]
        folder = f"{BUS}/{address}"
        self.tree.put(f"{folder}/driver_override", "(null)\n")
        self.tree.put(f"{folder}/uevent", f"PCI_CLASS={device_class}\nPCI_SLOT_NAME={address}\n")
        self.tree.put(f"{folder}/class", f"0x{device_class}\n", 0o444)
        self.tree.put(f"{folder}/modalias", _alias(*KINDS[kind]), 0o444)
        self.tree.put(f"{folder}/device", f"0x{device}\n", 0o444)
        self.tree.put(f"{folder}/subsystem_vendor", f"0x{subsystem_vendor}\n", 0o444)
        self.tree.put(f"{folder}/subsystem_device", f"0x{subsystem_device}\n", 0o444)
        self.tree.link(f"{folder}/subsystem", "/sys/bus/pci")
        self.tree.put(f"{folder}/vendor", f"0x{vendor}\n", 0o444)
        if self.has_iommu():
            group = group or str(max([10, *map(int, self.tree.names(GROUPS))]) + 1)
            self.tree.link(f"{folder}/iommu_group", f"{GROUPS}/{group}")
            self.tree.link(f"{GROUPS}/{group}/devices/{address}", f"{DEVICES}/{address}")
        self.tree.link(f"{DEVICES}/{address}", folder)

    def _free_address(self) -> str:
        taken = self.tree.names(DEVICES)
        return next(name for slot in range(4, 512) if (name := f"0000:{slot >> 5:02x}:{slot & 31:02x}.0") not in taken)

    def drivers(self) -> list[str]:
        """The drivers of PCI functions that are loaded."""
        return self.tree.names(DRIVERS)

    def has_iommu(self) -> bool:
        """Whether functions have groups without being bound."""
        return self.tree.exists(_IOMMU)

    # What is to be seen -------------------------------------------------------------------------------------------

    def driver(self, address: str) -> str | None:
        """The driver that has the function."""
        return self.tree.base(f"{DEVICES}/{address}/driver")

    def override(self, address: str) -> str | None:
        """The driver override; None when none is set."""
        text = self.tree.text(f"{DEVICES}/{address}/driver_override")
        return None if text == "(null)" else text

    def node(self, address: str) -> str:
        """The path of the group's node."""
        return vfio.group_node(self.tree, address)

    def mode(self, path: str) -> int | None:
        """The permission bits of a node; None when there is none."""
        found = self.host.stat(path)
        return None if found is None else found.st_mode & 0o7777

    # Other people -------------------------------------------------------------------------------------------------

    def chmod(self, path: str, mode: int, uid: int = 0, gid: int = 0) -> None:
        """Somebody sets a node's mode by hand. No event tells of it."""
        nodes.set_access(self.tree.at(path), mode, uid, gid)

    def rebind(self, address: str) -> None:
        """Somebody unbinds and binds by hand: the node is a new one, root's alone. An agent may come in between."""
        self._kernel.unbind("vfio-pci", address)
        with contextlib.suppress(OSError):
            self._kernel.bind("vfio-pci", address)

    def write(self, path: str, text: str) -> None:
        """Somebody writes to an attribute."""
        self._kernel.write(path, text)

    def lose_events(self) -> None:
        """Every listener's buffer overflows."""
        uevents.lose(self.tree)

    # Trouble ------------------------------------------------------------------------------------------------------

    def refuse(self, path: str, number: int, *, text: str = "*", times: int = 1) -> None:
        """Answer the next writes of `text` to `path` (shell patterns) with an errno."""
        faults.add(self.tree, faults.REFUSE, path, text, number=number, times=times)

    def swallow(self, path: str, *, text: str = "*", times: int = 1) -> None:
        """Report the next writes as done without doing them."""
        faults.add(self.tree, faults.SWALLOW, path, text, times=times)

    def stop_at(self, path: str, *, text: str = "*") -> faults.Gate:
        """Let writes wait at the door: for what happens in the middle of a pass, or for ever."""
        return faults.add_gate(self.tree, path, text)

    def delay_nodes(self, delay_s: float) -> None:
        """Let the nodes of later binds appear late; `inf` for never."""
        self.tree.put(nodes.NODE_DELAY, str(delay_s))
