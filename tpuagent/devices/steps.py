"""What can be done to a function, or to what all functions share? Values; each prints as a line of a dry run."""

from __future__ import annotations

from tpuagent.devices.pci import Access, Address
from tpuagent.values import dataclass


@dataclass(frozen=True)
class LoadModule:
    """Have modprobe load a module."""

    module: str

    def __str__(self) -> str:
        return f"load module {self.module}"


@dataclass(frozen=True)
class SetParameter:
    """Give a loaded module's parameter a value."""

    module: str
    parameter: str
    value: str

    def __str__(self) -> str:
        return f"set {self.parameter} of module {self.module} to {self.value}"


@dataclass(frozen=True)
class SetOverride:
    """Say which driver alone may have the function; None: any that knows it."""

    address: Address
    driver: str | None

    def __str__(self) -> str:
        return f"{self.address} " + (
            f"set driver override to {self.driver}" if self.driver else "clear driver override"
        )


@dataclass(frozen=True)
class Unbind:
    """Take the function from its driver."""

    address: Address
    driver: str

    def __str__(self) -> str:
        return f"{self.address} unbind from {self.driver}"


@dataclass(frozen=True)
class Bind:
    """Give the function to a driver."""

    address: Address
    driver: str

    def __str__(self) -> str:
        return f"{self.address} bind to {self.driver}"


@dataclass(frozen=True)
class AwaitNode:
    """Wait until the function's group has its node."""

    address: Address

    def __str__(self) -> str:
        return f"{self.address} await its node"


@dataclass(frozen=True)
class SetAccess:
    """Give owner and mode to a node, or to every node of a function."""

    target: Address | str
    access: Access

    def __str__(self) -> str:
        of = "" if isinstance(self.target, str) else " nodes"
        return f"{self.target}{of} set access to {show_access(self.access)}"


Step = LoadModule | SetParameter | SetOverride | Unbind | Bind | AwaitNode | SetAccess


def show_access(access: Access) -> str:
    """As `stat -c '%a %u:%g'` shows it, with the leading zero that makes octal plain."""
    return f"{access.mode:04o} {access.uid}:{access.gid}"
