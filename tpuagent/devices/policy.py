"""What does the configuration want of the devices? Values only."""

from __future__ import annotations

from tpuagent.devices.pci import GENERATIONS, Access, Address, Generation
from tpuagent.values import dataclass


@dataclass(frozen=True)
class Policy:
    """The `devices` section of the configuration.

    `group` is a name, because who is in /etc/group is looked up at each pass. `unsafe_interrupts` None: on where the
    documented set-up switches it on, which is x86_64.
    """

    mode: int = 0o666
    group: str = "root"
    exclude: frozenset[Address] = frozenset()
    generations: tuple[Generation, ...] = GENERATIONS
    allow_no_iommu: bool = False
    unsafe_interrupts: bool | None = None

    def access(self, gid: int) -> Access:
        """What every node of a function is given."""
        return Access(self.mode, 0, gid)
