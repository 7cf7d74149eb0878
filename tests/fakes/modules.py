"""Which modules does the simulated kernel have, and what appears when one is loaded?"""

from __future__ import annotations

from tests.fakes import nodes, uevents
from tests.fakes.tree import HIDDEN, Tree

RELEASE = f"{HIDDEN}/release"
ARCHITECTURE = f"{HIDDEN}/architecture"
AVAILABLE = f"{HIDDEN}/modules"  # NAME: there if modprobe finds it; "y" in it if this kernel has no-IOMMU mode
_NEEDS = {"vfio_pci": ("vfio",), "vfio_iommu_type1": ("vfio",), "vfio": ("iommufd",)}
_BRINGS = {"vfio": ("vfio_iommu_type1",)}  # what modprobe loads after it (softdep)
_PARAMETERS = {"vfio_iommu_type1": "allow_unsafe_interrupts", "iommufd": "allow_unsafe_interrupts"}
_DRIVERS = {"vfio_pci": "vfio-pci", "pci_stub": "pci-stub"}


def is_older_than(tree: Tree, major: int, minor: int) -> bool:
    """Whether the machine's kernel is older than a release."""
    release = (tree.text(RELEASE) or "0.0").split(".")
    return (int(release[0]), int(release[1])) < (major, minor)


def load(tree: Tree, name: str) -> bool:
    """Load a module and what it needs; False when there is no such module."""
    name = name.replace("-", "_")
    with tree.lock():
        return _load(tree, name)


def add_driver(tree: Tree, driver: str, ids: str = "") -> None:
    """A driver of PCI functions, with the ids that it knows."""
    tree.put(f"{HIDDEN}/drivers/{driver}", ids)
    for attribute in ("bind", "unbind", "new_id", "remove_id"):
        tree.put(f"/sys/bus/pci/drivers/{driver}/{attribute}", "", 0o200)


def _load(tree: Tree, name: str) -> bool:
    if tree.exists(f"/sys/module/{name}"):
        return True
    if not tree.exists(f"{AVAILABLE}/{name}"):
        return False
    for other in _NEEDS.get(name, ()):
        _load(tree, other)
    tree.folder(f"/sys/module/{name}")
    if parameter := _PARAMETERS.get(name):
        tree.put(f"/sys/module/{name}/parameters/{parameter}", "N\n")
    if name == "vfio" and tree.text(f"{AVAILABLE}/{name}") == "y":
        tree.put("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n")
    if driver := _DRIVERS.get(name):
        add_driver(tree, driver)
    _make_shared_node(tree, name)
    for other in _BRINGS.get(name, ()):
        _load(tree, other)
    return True


def _make_shared_node(tree: Tree, module: str) -> None:
    if module == "vfio":
        nodes.make(tree, "/dev/vfio/vfio", nodes.MISC_MAJOR, 196, 0o666)
        uevents.send(tree, "misc", "add", "vfio")
    if module == "iommufd":
        nodes.make(tree, "/dev/iommu", nodes.MISC_MAJOR, 125)
        uevents.send(tree, "misc", "add", "iommu")
