"""What can the agent's loop hear of? Values that workers put into its inbox."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuagent.containers.spec import ContainerSeen
from tpuagent.devices.report import Pass
from tpuagent.errors import TpuAgentError
from tpuagent.metadata.seen import Seen
from tpuagent.values import dataclass

if TYPE_CHECKING:
    from tpuagent.containers.supervisor import Supervisor


@dataclass(frozen=True)
class DevicesSeen:
    """The device worker has made a pass, or could not."""

    outcome: Pass | TpuAgentError


@dataclass(frozen=True)
class MetadataSeen:
    """The metadata worker has looked at tpu-env or /etc/environment."""

    seen: Seen


@dataclass(frozen=True)
class ContainersSeen:
    """A container's worker has looked at it."""

    seen: ContainerSeen


@dataclass(frozen=True)
class WorkerNeeded:
    """A container has come that is to have a worker."""

    supervisor: Supervisor


@dataclass(frozen=True)
class StopAsked:
    """SIGTERM or SIGINT came."""


@dataclass(frozen=True)
class ReloadAsked:
    """SIGHUP came."""


@dataclass(frozen=True)
class WorkerDied:
    """A worker raised what it must not: the agent cannot go on without it."""

    worker: str
    fault: Exception


Event = DevicesSeen | MetadataSeen | ContainersSeen | WorkerNeeded | StopAsked | ReloadAsked | WorkerDied
