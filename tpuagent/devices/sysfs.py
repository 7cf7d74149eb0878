"""What does the kernel say of the TPU functions? Hands: reads sysfs and /dev, changes nothing.

The scan reads sysfs itself, ids first: `modalias` has all four of them, and the class. While an unbind waits in the
kernel, reading a function's `uevent` or `driver_override` hangs on Linux 6.1; ids and links are always safe, so a scan
reads nothing else.
"""

from __future__ import annotations

import os
import stat

from tpuagent.devices.modules import NO_IOMMU_MODE, UNSAFE_INTERRUPTS, VFIO_MODULES, Module
from tpuagent.devices.pci import (
    GOOGLE_VENDOR,
    NO_IOMMU_GROUP,
    Access,
    Address,
    Function,
    Generation,
    Ids,
    Neighbour,
    Node,
    node_of_group,
    parse_address,
)
from tpuagent.errors import NoSuchFunction, NotATpu
from tpuagent.host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Table = Mapping[str, Generation]

DEVICES = "/sys/bus/pci/devices"
DRIVERS = "/sys/bus/pci/drivers"
# The parameters that the configuration may set, and the modules that have them.
PARAMETERS = {"vfio_iommu_type1": UNSAFE_INTERRUPTS, "iommufd": UNSAFE_INTERRUPTS, "vfio": NO_IOMMU_MODE}
_ACCELERATOR_CLASS = "0x12"


def scan(host: Host, generations: Sequence[Generation]) -> list[Function]:
    """Every function on the bus whose own four ids are in the table, in the order of addresses."""
    return sorted(look_at_each(host, generations), key=lambda function: function.address)


def look_at_each(host: Host, generations: Sequence[Generation]) -> Iterator[Function]:
    """As `scan`, each as soon as it has been looked at, in the order of names."""
    table = {generation.ids.alias: generation for generation in generations}
    for name in host.names(DEVICES):
        ids, _ = _ids_and_class(host, name)
        if (generation := table.get(ids)) and (function := _look(host, name, generation, table)):
            yield function


def require_tpu(host: Host, address: Address, generations: Sequence[Generation]) -> None:
    """Raise NoSuchFunction or NotATpu unless a TPU function of the table has the address."""
    if not host.exists(f"{DEVICES}/{address}"):
        raise NoSuchFunction(
            f"find {address}", "no PCI function has this address; list the TPU functions with: tpuagent devices"
        )
    ids = _ids(host, str(address))
    if ids in {generation.ids for generation in generations}:
        return
    hint = ""
    if (host.attribute(f"{DEVICES}/{address}/class") or "").startswith(_ACCELERATOR_CLASS):
        hint = "; if it is a newer TPU, add them to the configuration (devices.generations)"
    raise NotATpu(f"touch {address}", f"its ids {ids} are those of no known TPU generation{hint}")


def _look(host: Host, name: str, generation: Generation, table: Table) -> Function | None:
    folder = f"{DEVICES}/{name}"
    group, no_iommu = _group_of(host, name)
    driver = driver_of(host, name)
    paths = [] if group is None else [node_of_group(group, no_iommu=no_iommu)]
    if driver:  # which makes the others
        paths += _device_paths(host, name)
    nodes = tuple(node for path in paths if (node := look_at_node(host, path)))
    # After the nodes: the pass may be binding a neighbour, which gets its driver first and then the group its node.
    members = host.names(f"{folder}/iommu_group/devices") if group else []
    neighbours = _neighbours(host, name, members, table)
    # It may have vanished while it was looked at.
    if name not in members and not host.exists(folder):
        return None
    return Function(parse_address(name), generation, driver, group, no_iommu, neighbours, nodes)


def _group_of(host: Host, address: Address | str) -> tuple[str | None, bool]:
    """The function's IOMMU group, and whether it is one that only the no-IOMMU mode made."""
    folder = f"{DEVICES}/{address}/iommu_group"
    group = _base(host.link(folder))
    return group, group is not None and host.attribute(f"{folder}/name") == NO_IOMMU_GROUP


def _neighbours(host: Host, name: str, members: Sequence[str], table: Table) -> tuple[Neighbour, ...]:
    others = []
    for other in members:
        if other == name:
            continue
        ids, device_class = _ids_and_class(host, other)
        if device_class.startswith("06"):  # bridges pass transactions on and have no part in who may use the group
            continue
        others.append(Neighbour(other, driver_of(host, other), tpu=ids in table))
    return tuple(others)


def driver_of(host: Host, address: Address | str) -> str | None:
    """The driver that has the function now."""
    return _base(host.link(f"{DEVICES}/{address}/driver"))


def driver_is_there(host: Host, driver: str) -> bool:
    """Whether the kernel has a driver for PCI functions, loaded or built in."""
    return host.exists(f"{DRIVERS}/{driver}")


def node_paths(host: Host, address: Address | str) -> tuple[str, ...]:
    """The paths that the function's nodes may have: its group's first, then its own.

    Looked up anew after a bind: without an IOMMU the group only comes with it. Since Linux 6.1 a bound function has a
    name in `vfio-dev` also where the kernel makes no such nodes, so not every path is there.
    """
    group, no_iommu = _group_of(host, address)
    if group is None:
        return ()
    return (node_of_group(group, no_iommu=no_iommu), *_device_paths(host, address))


def _device_paths(host: Host, address: Address | str) -> list[str]:
    return [f"/dev/vfio/devices/{device}" for device in host.names(f"{DEVICES}/{address}/vfio-dev")]


def look_at_node(host: Host, path: str) -> Node | None:
    """The character device at a path; None when there is none."""
    found = host.stat(path)
    if found is None or not stat.S_ISCHR(found.st_mode):
        return None
    access = Access(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
    return Node(path, found.st_rdev, access, found.st_ino)


def shared_nodes(host: Host) -> tuple[Node, ...]:
    """The nodes that users of any function open as well."""
    return tuple(node for path in ("/dev/vfio/vfio", "/dev/iommu") if (node := look_at_node(host, path)))


def accel_nodes(host: Host) -> tuple[str, ...]:
    """The accel nodes of Google's devices: the older generations, which need no binding."""
    return tuple(
        f"/dev/{name}"
        for name in host.names("/sys/class/accel")
        if host.attribute(f"/sys/class/accel/{name}/device/vendor") == f"0x{GOOGLE_VENDOR:04x}"
    )


def device_numbers(host: Host, function: Function) -> frozenset[int]:
    """The numbers of every character device that the function's driver made, whichever driver it is."""
    folder = f"{DEVICES}/{function.address}"
    numbers = {node.number for node in function.nodes}
    for kind in host.names(folder):
        if host.link(f"{folder}/{kind}") is not None:  # driver, iommu_group, subsystem: other things' folders
            continue
        for name in host.names(f"{folder}/{kind}"):
            major, _, minor = (host.attribute(f"{folder}/{kind}/{name}/dev") or "").partition(":")
            if major.isdecimal() and minor.isdecimal():
                numbers.add(os.makedev(int(major), int(minor)))
    return frozenset(numbers)


def modules(host: Host) -> tuple[Module, ...]:
    """The modules that binding needs or whose parameters the configuration may set."""
    seen = []
    for name in dict.fromkeys((*VFIO_MODULES, *PARAMETERS)):
        folder = f"/sys/module/{name.replace('-', '_')}"
        # Of the others only the parameters matter, which a module that is not there has not.
        loaded = name in VFIO_MODULES and (host.exists(folder) or driver_is_there(host, name) or _built_in(host, name))
        parameter = PARAMETERS.get(name)
        value = host.attribute(f"{folder}/parameters/{parameter}") if parameter else None
        seen.append(Module(name, loaded, () if value is None or parameter is None else ((parameter, value),)))
    return tuple(seen)


def _built_in(host: Host, name: str) -> bool:
    listed = host.read(f"/lib/modules/{host.kernel_release()}/modules.builtin") or ""
    wanted = f"/{name.replace('-', '_')}.ko"
    return any(line.replace("-", "_").endswith(wanted) for line in listed.splitlines())


def _ids_and_class(host: Host, name: str) -> tuple[str, str]:
    """A function's ids, as Ids.alias has them, and its class; both empty when it has vanished."""
    ids, _, device_class = (host.attribute(f"{DEVICES}/{name}/modalias") or "").partition("bc")
    return ids, device_class


def _ids(host: Host, name: str) -> Ids:
    return Ids(*(_number(host, name, key) for key in ("vendor", "device", "subsystem_vendor", "subsystem_device")))


def _number(host: Host, name: str, attribute: str) -> int:
    """A function's id; -1 when it has vanished or says nothing that is a number."""
    try:
        return int(host.attribute(f"{DEVICES}/{name}/{attribute}") or "", 16)
    except ValueError:
        return -1


def _base(link: str | None) -> str | None:
    return None if link is None else link.rpartition("/")[2]
