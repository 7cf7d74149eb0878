"""What is a TPU function? Addresses, the table of generations, and one look at a function. Values only."""

from __future__ import annotations

from tpuagent.errors import UsageError
from tpuagent.values import dataclass

VFIO_DRIVER = "vfio-pci"
NO_IOMMU_GROUP = "vfio-noiommu"

_DIGITS = "0123456789abcdefABCDEF"


@dataclass(frozen=True, order=True)
class Address:
    """Where a function sits on the PCI bus. Prints as the kernel names it: the kernel compares names exactly."""

    domain: int
    bus: int
    slot: int
    function: int

    def __str__(self) -> str:
        return f"{self.domain:04x}:{self.bus:02x}:{self.slot:02x}.{self.function}"


def parse_address(text: str) -> Address:
    """The address in `0000:00:04.0`, `00:04.0` or upper case. Anything else is refused before a path is made of it."""
    before, _, place = text.rpartition(":")
    domain, colon, bus = before.rpartition(":")
    slot, _, function = place.partition(".")
    try:
        # Wider domains than four digits exist (Intel VMD, Hyper-V); the kernel prints as many digits as they need.
        wide = _number(domain, most=0xFFFFFFFF, least_digits=4) if colon else 0
        return Address(wide, _number(bus, most=0xFF), _number(slot, most=0x1F), _number(function, most=7))
    except ValueError:
        raise UsageError(
            f"read {text!r} as a PCI address",
            "one looks like 0000:00:04.0 or 00:04.0; list the TPU functions with: tpuagent devices",
        ) from None


def _number(text: str, *, most: int, least_digits: int | None = None) -> int:
    """What hexadecimal digits mean, as many as `most` has; ValueError. Not by re: its import outlasts a pass."""
    digits = len(f"{most:x}")
    if text.strip(_DIGITS) or not (least_digits or digits) <= len(text) <= digits or (number := int(text, 16)) > most:
        raise ValueError(text)
    return number


@dataclass(frozen=True)
class Ids:
    """The four numbers by which a PCI function says what it is."""

    vendor: int
    device: int
    subsystem_vendor: int
    subsystem_device: int

    def __str__(self) -> str:
        return f"{self.vendor:04x}:{self.device:04x}:{self.subsystem_vendor:04x}:{self.subsystem_device:04x}"

    @property
    def alias(self) -> str:
        """How the attribute `modalias` of a function with these ids begins; its class follows."""
        subsystem = f"sv{self.subsystem_vendor:08X}sd{self.subsystem_device:08X}"
        return f"pci:v{self.vendor:08X}d{self.device:08X}{subsystem}"


def parse_ids(text: str) -> Ids:
    """The ids in `1ae0:006f:1ae0:00d1`; ValueError for anything else."""
    try:
        vendor, device, subsystem_vendor, subsystem_device = (_number(part, most=0xFFFF) for part in text.split(":"))
    except ValueError:
        raise ValueError("four ids of four hexadecimal digits are expected, like 1ae0:006f:1ae0:00d1") from None
    return Ids(vendor, device, subsystem_vendor, subsystem_device)


@dataclass(frozen=True)
class Generation:
    """A kind of TPU chip: its name, its ids, and how many PCI functions one chip shows."""

    name: str
    ids: Ids
    functions_per_chip: int = 1


# From Google's documentation of custom images for Cloud TPU VMs. The vendor also makes network (0042) and NVMe (001f)
# functions that sit on the same virtual machine, so the vendor alone never decides.
GENERATIONS = (
    Generation("v5p", Ids(0x1AE0, 0x0062, 0x1AE0, 0x00AD)),
    Generation("v6e", Ids(0x1AE0, 0x006F, 0x1AE0, 0x00D1)),
    Generation("tpu7x", Ids(0x1AE0, 0x0076, 0x1AE0, 0x00F2), functions_per_chip=2),
)
GOOGLE_VENDOR = 0x1AE0
# What else of Google's a virtual machine has, by device id. Without these it loses its network or its disk.
NO_TPUS = {0x0042: "the network card", 0x001F: "the disk"}


@dataclass(frozen=True)
class Access:
    """Who may open a node."""

    mode: int
    uid: int
    gid: int


@dataclass(frozen=True)
class Node:
    """A device node as it is: its path, its device number, and who may open it.

    `inode` tells it from one that was there before in this boot under the same path: a rebind makes a new node, and
    devtmpfs gives no number twice.
    """

    path: str
    number: int
    access: Access
    inode: int = 0


@dataclass(frozen=True)
class Neighbour:
    """Another endpoint of a function's IOMMU group (bridges do not count). `tpu`: one the agent binds itself."""

    address: str
    driver: str | None
    tpu: bool


def node_of_group(group: str, *, no_iommu: bool) -> str:
    """The path that the kernel gives a group's node (drivers/vfio)."""
    return f"/dev/vfio/noiommu-{group}" if no_iommu else f"/dev/vfio/{group}"


@dataclass(frozen=True)
class Function:
    """One look at a TPU function: what was so at that moment."""

    address: Address
    generation: Generation
    driver: str | None
    group: str | None
    no_iommu: bool = False
    neighbours: tuple[Neighbour, ...] = ()
    nodes: tuple[Node, ...] = ()

    @property
    def group_node(self) -> str | None:
        """The path that the group's node has, or will have once the function is bound."""
        return None if self.group is None else node_of_group(self.group, no_iommu=self.no_iommu)

    @property
    def bound(self) -> bool:
        """Whether the driver that this project wants has the function."""
        return self.driver == VFIO_DRIVER

    @property
    def has_group_node(self) -> bool:
        """Whether the node of the group exists."""
        return any(node.path == self.group_node for node in self.nodes)

    @property
    def release_pending(self) -> bool:
        """Whether an unbind waits in the kernel for the function's last user.

        The kernel takes the driver link away at once and the group's node only at the end, so a node without a driver
        is that wait; unless another function of the group keeps the node there.
        """
        shared = any(neighbour.driver == VFIO_DRIVER for neighbour in self.neighbours)
        return self.driver is None and self.has_group_node and not shared
