"""What does a pass have to tell? Values."""

from __future__ import annotations

from tpuagent.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tpuagent.devices.holders import Holder
    from tpuagent.devices.pci import Address, Function
    from tpuagent.devices.steps import Step
    from tpuagent.errors import TpuAgentError


@dataclass(frozen=True)
class Report:
    """What one function is after a pass, what was done to it, and what went wrong."""

    function: Function
    state: str
    reason: str = ""
    holders: tuple[Holder, ...] = ()
    steps: tuple[Step, ...] = ()
    error: TpuAgentError | None = None


@dataclass(frozen=True)
class Pass:
    """One pass over the host. `steps` and `errors` are those that belong to no single function."""

    reports: tuple[Report, ...]
    excluded: tuple[Address, ...] = ()
    accel_nodes: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    errors: tuple[TpuAgentError, ...] = ()

    @property
    def has_tpus(self) -> bool:
        """Whether this host has TPUs of any generation."""
        return bool(self.reports or self.accel_nodes)

    @property
    def changed(self) -> bool:
        """Whether anything was changed (in a dry run: would be)."""
        return bool(self.steps) or any(report.steps for report in self.reports)
