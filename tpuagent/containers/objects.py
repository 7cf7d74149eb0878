"""What does a container engine have? Its objects as one look shows them: values."""

from __future__ import annotations

from tpuagent.values import dataclass


@dataclass(frozen=True)
class EngineInfo:
    """Who answers on the socket: `name` is Docker or Podman, `api` the version that both sides speak."""

    name: str
    version: str
    api: str


@dataclass(frozen=True)
class Container:
    """A container at one look.

    `state` is the engine's word: created, running, paused, restarting, removing, exited, dead (Podman's own words are
    translated). `started_at` and `finished_at` are the engine's RFC 3339 texts, empty when it never was. `error` is
    what the engine says of a start that failed. `pid` 0: it does not run.
    """

    id: str
    name: str
    image: str  # the reference that it was created from
    image_id: str
    state: str
    labels: tuple[tuple[str, str], ...] = ()
    started_at: str = ""
    finished_at: str = ""
    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""
    pid: int = 0

    def label(self, name: str) -> str:
        """A label's value; empty when it has no such label."""
        return dict(self.labels).get(name, "")


@dataclass(frozen=True)
class Image:
    """An image that the engine has. `digests` are the repository digests, like gcr.io/x/y@sha256:…; maybe none."""

    id: str
    digests: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineEvent:
    """One event of a container. `action` is the engine's word: start, die, oom, destroy, rename, …"""

    action: str
    id: str
    name: str
    exit_code: int | None = None
