"""What does a container engine have? Its objects as one look shows them: values."""

from __future__ import annotations

import calendar
import re

from tpuagent.values import dataclass

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(\.\d+)?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII)


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

    @property
    def ran_s(self) -> float:
        """How long it ran, the last time that it did; 0 when that is not known."""
        return max(0.0, _seconds(self.finished_at) - _seconds(self.started_at))


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


def _seconds(text: str) -> float:
    """An RFC 3339 time as seconds of the epoch; 0 when it is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return 0.0
    *whole, fraction, sign, hours, minutes = found.groups()
    try:
        seconds = calendar.timegm((*map(int, whole), 0, 0, 0)) + float(fraction or 0)
    except ValueError:  # no such month, or a year before all others
        return 0.0
    offset = (int(hours) * 3600 + int(minutes) * 60) if sign else 0
    return seconds + offset if sign == "-" else seconds - offset
