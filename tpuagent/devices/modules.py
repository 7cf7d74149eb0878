"""Which kernel modules does binding need, and which of their parameters are to be set? Pure."""

from __future__ import annotations

from tpuagent.devices.pci import VFIO_DRIVER
from tpuagent.devices.policy import Policy
from tpuagent.devices.steps import LoadModule, SetParameter, Step
from tpuagent.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Module:
    """A kernel module as it is; built in counts as loaded. `parameters` are the ones that can be written."""

    name: str
    loaded: bool
    parameters: tuple[tuple[str, str], ...] = ()


VFIO_MODULES = (VFIO_DRIVER, "vfio_iommu_type1")
UNSAFE_INTERRUPTS = "allow_unsafe_interrupts"
NO_IOMMU_MODE = "enable_unsafe_noiommu_mode"


def plan_modules(modules: Sequence[Module]) -> tuple[Step, ...]:
    """The steps that load what binding needs."""
    return tuple(LoadModule(module.name) for module in modules if module.name in VFIO_MODULES and not module.loaded)


def plan_parameters(modules: Sequence[Module], policy: Policy, machine: str) -> tuple[Step, ...]:
    """The steps that set the parameters that the configuration asks for, once the modules are there.

    Loading a module brings others along, iommufd for one; before that (in a dry run) only vfio_iommu_type1 is
    counted on.
    """
    steps: list[Step] = []
    wanted = policy.unsafe_interrupts
    if wanted is None and machine == "x86_64":
        wanted = True
    for module in modules:
        seen = dict(module.parameters)
        if module.name == "vfio_iommu_type1" and not module.loaded:
            seen = {UNSAFE_INTERRUPTS: _flag(value=False)}  # how it comes
        if wanted is not None and seen.get(UNSAFE_INTERRUPTS) == _flag(value=not wanted):
            steps.append(SetParameter(module.name, UNSAFE_INTERRUPTS, _flag(wanted)))
        if module.name == "vfio" and policy.allow_no_iommu and seen.get(NO_IOMMU_MODE) != "Y":
            steps.append(SetParameter("vfio", NO_IOMMU_MODE, "Y"))
    return tuple(steps)


def _flag(value: bool) -> str:
    return "Y" if value else "N"
