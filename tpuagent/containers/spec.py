"""What is a container to be, what does it need of the host, and what became of it? Values."""

from __future__ import annotations

from tpuagent.values import dataclass

UNLIMITED = -1


@dataclass(frozen=True)
class Mount:
    """A file or folder of the host that the container sees."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True)
class Ulimit:
    """A limit of the container's processes; -1 is unlimited."""

    soft: int
    hard: int

    def __str__(self) -> str:
        soft, hard = ("unlimited" if limit == UNLIMITED else str(limit) for limit in (self.soft, self.hard))
        return soft if soft == hard else f"{soft}:{hard}"


@dataclass(frozen=True)
class Spec:
    """One container. An empty `image` switches it off, as `enabled` does.

    In `command`, {uid}, {gid} and {chroot} stand for the settings of these names. `memory` is in bytes and `cpus` in
    processors, None for all there are. `log_max_bytes` 0: not capped. `probe_port` is where it listens when it is
    ready, None if it does not say. `conflicts` are the names of units, containers and snaps beside which it is not
    started. `required`: the host is degraded without it.
    """

    name: str
    image: str = ""
    enabled: bool = True
    required: bool = False
    needs_devices: bool = False
    command: tuple[str, ...] = ()
    uid: str = ""
    gid: str = ""
    chroot: str = ""
    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[Mount, ...] = ()
    privileged: bool = False
    network: str = "bridge"
    memory: int | None = None
    cpus: float | None = None
    ulimits: tuple[tuple[str, Ulimit], ...] = (("memlock", Ulimit(UNLIMITED, UNLIMITED)),)
    log_max_bytes: int = 10 * 1024 * 1024
    log_max_files: int = 3
    probe_port: int | None = None
    pull: str = "missing"
    stop_grace_s: int = 10
    conflicts: tuple[str, ...] = ()

    @property
    def off(self) -> bool:
        """Whether it is not to run at all."""
        return not self.image or not self.enabled


# As documented for a TPU VM with an image of one's own.
VBAR = Spec(
    "vbar",
    image="gcr.io/cloud-tpu-v2-images/vbar_control_agent:0.0.1",
    required=True,
    needs_devices=True,
    command=(
        "vbar_control_agent",
        "--logtostderr",
        "--gid={gid}",
        "--uid={uid}",
        "--chroot={chroot}",
        "--census_enabled=false",
        "--loas_pwd_fallback_in_corp",
    ),
    privileged=True,
    network="host",
    probe_port=8353,
    conflicts=("vbarcontrolagent",),
)
TELEMETRY = Spec(
    "telemetry",
    image="gcr.io/cloud-tpu-v2-images/ai-telemetry-collector:latest",
    enabled=False,
    needs_devices=True,
    privileged=True,
    network="host",
)
BUILT_IN = (VBAR, TELEMETRY)


@dataclass(frozen=True)
class Devices:
    """What a container that needs the TPU functions has to know of them.

    `nodes` tells each node from one that was there before under the same path. `expected`: this host has TPUs.
    """

    usable: bool = False
    reason: str = "the TPU functions have not been looked at yet"
    nodes: frozenset[str] = frozenset()
    expected: bool = True


@dataclass(frozen=True)
class Policy:
    """The sections `containers` and `engine`. `socket` None: Docker's, or else Podman's."""

    specs: tuple[Spec, ...] = BUILT_IN
    socket: str | None = None


@dataclass(frozen=True)
class ContainerSeen:
    """What a container's worker has to tell after a look.

    `state` is one of
      off          not configured to run
      stopped      an operator has stopped it
      waiting      for TPU functions, or to know what kind of host this is
      stood down   something else on this host does its work, or has its port
      no engine    no container engine answers
      pulling      its image is being had
      starting     it is being started, or runs and does not listen yet
      running      it runs, and listens if it has a port to listen on
      back-off     it ended, or something about it failed: there is a next attempt
      failed       what is configured cannot work, or is not there for this machine: attempts are rare
      blocked      the engine has a container of the same name that is not the agent's
    `memlock` is the limit that its processes really have, in bytes or "unlimited".
    """

    name: str
    state: str
    reason: str = ""
    image: str = ""
    digest: str = ""
    id: str = ""
    started_at: str = ""
    restarts: int = 0
    memlock: str = ""
    required: bool = False
    expected: bool = True

    @property
    def fault(self) -> bool:
        """Whether the host is not what it should be because of it."""
        return self.required and self.expected and self.state not in ("running", "off")


@dataclass(frozen=True)
class Situation:
    """What a container depends on besides itself.

    `gke` None: not known yet. `socket` None: no engine answers, and `away` says why; nothing before it was looked for.
    """

    spec: Spec
    devices: Devices = Devices()
    gke: bool | None = None
    socket: str | None = None
    away: str = ""
