"""What appears and disappears in sysfs and /dev when vfio-pci takes a function and leaves it?"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from collections.abc import Iterator

from tests.fakes import nodes, uevents
from tests.fakes.tree import HIDDEN, Tree

DEVICES = "/sys/bus/pci/devices"
GROUPS = "/sys/kernel/iommu_groups"
BOUND = f"{HIDDEN}/bound"  # ADDRESS: the driver as the kernel has it; what sysfs shows goes earlier
USERS = f"{HIDDEN}/users"  # ADDRESS/PID: who has a device descriptor
CDEVS = f"{HIDDEN}/cdevs"  # there if the kernel makes device cdevs
NO_IOMMU = "vfio-noiommu"
_NO_IOMMU_SWITCH = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"


def join(tree: Tree, address: str) -> None:
    """vfio-pci's probe: a group for the function if need be, its nodes, their events. Raises OSError."""
    folder = f"{DEVICES}/{address}"
    if (tree.text(f"{folder}/class") or "").startswith("0x06"):
        raise OSError(errno.EINVAL, "not an endpoint")
    if tree.base(f"{folder}/iommu_group") is None:
        if tree.text(_NO_IOMMU_SWITCH) != "Y":
            raise OSError(errno.EINVAL, "no IOMMU group")
        _make_group(tree, address)
    group = str(tree.base(f"{folder}/iommu_group"))
    if not tree.exists(f"/sys/class/vfio/{_name(tree, group)}"):
        _add_group_node(tree, group)
    _add_device(tree, address, with_node=tree.exists(CDEVS) and not _no_iommu(tree, group))


def close_door(tree: Tree, address: str) -> None:
    """Take away what a new user could open. Newer kernels do it before they wait for the old ones, older ones after."""
    folder = f"{DEVICES}/{address}"
    for name in tree.names(f"{folder}/vfio-dev"):
        nodes.remove(tree, f"/dev/vfio/devices/{name}")
        tree.remove(f"/sys/class/vfio-dev/{name}")
        uevents.send(tree, "vfio-dev", "remove", name)
    tree.remove(f"{folder}/vfio-dev")


def leave(tree: Tree, address: str) -> None:
    """The end of vfio-pci's remove, when nobody has the device open any more."""
    folder = f"{DEVICES}/{address}"
    group = str(tree.base(f"{folder}/iommu_group"))
    close_door(tree, address)
    others = set(tree.names(f"{GROUPS}/{group}/devices")) - {address}
    if not any(tree.text(f"{BOUND}/{other}") == "vfio-pci" for other in others):
        name = _name(tree, group)
        nodes.remove(tree, f"/dev/vfio/{name}")
        tree.remove(f"/sys/class/vfio/{name}")
        tree.remove(f"/sys/devices/virtual/vfio/{name}")
        uevents.send(tree, "vfio", "remove", name)
    if _no_iommu(tree, group):
        tree.remove(f"{folder}/iommu_group")
        tree.remove(f"{GROUPS}/{group}")


@contextlib.contextmanager
def awaited_release(tree: Tree, address: str) -> Iterator[int | None]:
    """A pipe on which the release of the device is told, opened before anybody can tell; None if nobody holds it."""
    place = tree.at(f"{HIDDEN}/release-{address}")
    if not tree.names(f"{USERS}/{address}"):
        yield None
        return
    with contextlib.suppress(FileExistsError):
        os.mkfifo(place)
    descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def wait_released(tree: Tree, address: str, told: int | None) -> None:
    """Return when nobody has the device open: the kernel waits for as long as that takes."""
    while told is not None and tree.names(f"{USERS}/{address}"):
        poll = select.poll()
        poll.register(told, select.POLLIN)
        poll.poll()
        os.read(told, 1)


def tell_released(tree: Tree, address: str) -> None:
    """Wake an unbind that waits for the device."""
    with contextlib.suppress(OSError):  # nobody waits
        descriptor = os.open(tree.at(f"{HIDDEN}/release-{address}"), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.write(descriptor, b"!")
        os.close(descriptor)


def group_node(tree: Tree, address: str) -> str:
    """The path of the node of a function's group."""
    return f"/dev/vfio/{_name(tree, str(tree.base(f'{DEVICES}/{address}/iommu_group')))}"


def _make_group(tree: Tree, address: str) -> None:
    group = str(min(set(range(1000)) - {int(name) for name in tree.names(GROUPS)}))
    tree.put(f"{GROUPS}/{group}/name", f"{NO_IOMMU}\n", 0o444)
    tree.link(f"{GROUPS}/{group}/devices/{address}", f"{DEVICES}/{address}")
    tree.link(f"{DEVICES}/{address}/iommu_group", f"{GROUPS}/{group}")


def _add_group_node(tree: Tree, group: str) -> None:
    name = _name(tree, group)
    minor = nodes.free_minor(tree, nodes.GROUP_MAJOR, [f"/dev/vfio/{other}" for other in tree.names("/dev/vfio")])
    tree.put(f"/sys/devices/virtual/vfio/{name}/dev", f"{nodes.GROUP_MAJOR}:{minor}\n", 0o444)
    tree.link(f"/sys/class/vfio/{name}", f"/sys/devices/virtual/vfio/{name}")
    nodes.make(tree, f"/dev/vfio/{name}", nodes.GROUP_MAJOR, minor)
    uevents.send(tree, "vfio", "add", name)


def _add_device(tree: Tree, address: str, *, with_node: bool) -> None:
    folder = f"{DEVICES}/{address}/vfio-dev"
    taken = {int(name.removeprefix("vfio")) for name in tree.names("/sys/class/vfio-dev")}
    name = f"vfio{min(set(range(len(taken) + 1)) - taken)}"
    tree.folder(f"{folder}/{name}")
    tree.link(f"/sys/class/vfio-dev/{name}", f"{folder}/{name}")
    if with_node:
        others = [f"/dev/vfio/devices/{other}" for other in tree.names("/dev/vfio/devices")]
        minor = nodes.free_minor(tree, nodes.CDEV_MAJOR, others)
        tree.put(f"{folder}/{name}/dev", f"{nodes.CDEV_MAJOR}:{minor}\n", 0o444)
        nodes.make(tree, f"/dev/vfio/devices/{name}", nodes.CDEV_MAJOR, minor)
    uevents.send(tree, "vfio-dev", "add", name)


def _no_iommu(tree: Tree, group: str) -> bool:
    return tree.text(f"{GROUPS}/{group}/name") == NO_IOMMU


def _name(tree: Tree, group: str) -> str:
    return f"noiommu-{group}" if _no_iommu(tree, group) else group
