"""What does a driver of an older generation make of a function it takes? An accel node."""

from __future__ import annotations

from tests.fakes import nodes, uevents
from tests.fakes.tree import HIDDEN, Tree

DRIVERS = f"{HIDDEN}/accel-drivers"  # NAME: there if the driver makes accel nodes
_DEVICES = "/sys/bus/pci/devices"


def join(tree: Tree, driver: str, address: str) -> None:
    """Make the function's accel node, if its driver is one that does."""
    if not tree.exists(f"{DRIVERS}/{driver}"):
        return
    taken = {int(name.removeprefix("accel")) for name in tree.names("/sys/class/accel")}
    number = min(set(range(len(taken) + 1)) - taken)
    folder = f"{_DEVICES}/{address}/accel/accel{number}"
    tree.put(f"{folder}/dev", f"{nodes.ACCEL_MAJOR}:{number}\n", 0o444)
    tree.link(f"{folder}/device", f"{_DEVICES}/{address}")
    tree.link(f"/sys/class/accel/accel{number}", folder)
    nodes.make(tree, f"/dev/accel{number}", nodes.ACCEL_MAJOR, number)
    uevents.send(tree, "accel", "add", f"accel{number}")


def leave(tree: Tree, address: str) -> None:
    """Take it away again."""
    for name in tree.names(f"{_DEVICES}/{address}/accel"):
        nodes.remove(tree, f"/dev/{name}")
        tree.remove(f"/sys/class/accel/{name}")
        uevents.send(tree, "accel", "remove", name)
    tree.remove(f"{_DEVICES}/{address}/accel")
