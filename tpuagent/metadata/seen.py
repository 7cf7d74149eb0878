"""What did the last look at the metadata find? Values that the metadata worker tells."""

from __future__ import annotations

from tpuagent.metadata.environment import Edit
from tpuagent.metadata.tpuenv import LeftOut, TpuEnv, accelerator_type, worker_id
from tpuagent.values import dataclass


@dataclass(frozen=True)
class TpuEnvSeen:
    """What became of tpu-env at one look.

    `state` is one of
      written      the file was made, changed or given its owner and mode back
      current      the file says already what the attribute says
      absent       the attribute is not defined
      not-google   the firmware names no Google host and no server is configured: there is nothing to expect
      deleted      the attribute was defined and is no more; the file stays
      bad          the attribute, or a whole answer, cannot be used; the last good file stays
      failed       the file cannot be written; the old one stays
      unreachable  the server does not answer (yet)
    `content` is the last good one that this process has seen.
    """

    state: str
    path: str
    reason: str = ""
    content: TpuEnv | None = None

    @property
    def settled(self) -> bool:
        """Whether it is known how this boot's tpu-env is: READY need not wait any longer."""
        return self.state != "unreachable"

    @property
    def expected(self) -> bool:
        """Whether this is a host that should have a tpu-env."""
        return self.state != "not-google"

    @property
    def good(self) -> bool:
        """Whether the file says what the attribute says now."""
        return self.state in ("written", "current")

    @property
    def accelerator_type(self) -> str | None:
        """What kind of TPU this is; None when it is not known."""
        return accelerator_type(self.content.values) if self.content else None

    @property
    def worker_id(self) -> str | None:
        """Which worker this is, "0" included; None when it is not known."""
        return worker_id(self.content.values) if self.content else None

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The entries that no reader could take."""
        return self.content.left_out if self.content else ()


@dataclass(frozen=True)
class EnvironmentSeen:
    """What became of /etc/environment. `error` set: it could not be read or written, and is as it was."""

    edit: Edit | None
    written: bool = False
    error: str = ""


@dataclass(frozen=True)
class PlaceSeen:
    """What kind of host this is. `gke`: a node of Google Kubernetes Engine."""

    gke: bool


Seen = TpuEnvSeen | EnvironmentSeen | PlaceSeen
