"""Which limits does a login session get? Pure: limits.conf and limits.d as pam_limits reads them.

A line for a user's name counts more than one for a group of the user's, and that more than `*`, whatever their order;
of equals the last one counts. Only lines with its own name are for root. memlock is in KiB.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tpuagent.values import dataclass

UNLIMITED = ("unlimited", "infinity", "-1")
_ROOT = "root"
_NUMBER = re.compile(r"\+?[0-9]+")
_NAMES = 4


@dataclass(frozen=True)
class Line:
    """A line that sets a limit. `limit` None: unlimited. `fault`: PAM makes nothing good of it."""

    origin: str
    domain: str
    kinds: tuple[str, ...]
    item: str
    limit: int | None
    fault: str = ""


@dataclass(frozen=True)
class Effective:
    """A limit that a session gets, and the line that says so; `line` None: none does, and init's own limit stays."""

    line: Line | None

    def reaches(self, least: int | None) -> bool:
        """Whether the session gets at least so much (None: unlimited)."""
        if self.line is None or self.line.fault:
            return False
        return self.line.limit is None or (least is not None and self.line.limit >= least)


def parse_limits(text: str, path: str) -> tuple[Line, ...]:
    """The lines that set something; others are comments, or ignored by PAM too."""
    found = []
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.partition("#")[0].split()
        if len(words) < _NAMES:
            continue
        domain, kind, item, value = words[0], *(word.lower() for word in words[1:_NAMES])
        kinds = {"-": ("soft", "hard"), "soft": ("soft",), "hard": ("hard",)}.get(kind, ())
        line = _line(f"{path}:{number}", domain, kinds, item, value)
        if kinds and line:
            found.append(line)
    return tuple(found)


def _line(origin: str, domain: str, kinds: tuple[str, ...], item: str, value: str) -> Line | None:
    """None for a value that begins with no number: PAM leaves that line alone. It reads no further than the number."""
    if value in UNLIMITED:
        fault = "nofile cannot be unlimited: the kernel refuses it, and PAM the login" if item == "nofile" else ""
        return Line(origin, domain, kinds, item, None, fault)
    number = _NUMBER.match(value)
    return Line(origin, domain, kinds, item, int(number[0])) if number else None


def effective(lines: Iterable[Line], user: str, groups: Sequence[str], item: str, kind: str) -> Effective:
    """What a session of a user gets of one item."""
    best: tuple[int, Line | None] = (0, None)
    for line in lines:
        weight = _weight(line.domain, user, groups)
        if weight and line.item == item and kind in line.kinds and weight >= best[0]:
            best = (weight, line)
    return Effective(best[1])


def _weight(domain: str, user: str, groups: Sequence[str]) -> int:
    """How much a line's domain has to say about a user; 0 for nothing."""
    if domain == user:
        return 3
    if user == _ROOT:
        return 0
    if domain.startswith("@"):
        return 2 * (domain[1:] in groups)
    return int(domain == "*")


def about(lines: Iterable[Line], user: str, item: str) -> tuple[Line, ...]:
    """The lines that have something to say about a user who is in no group."""
    return tuple(line for line in lines if line.item == item and _weight(line.domain, user, ()))


def others(lines: Iterable[Line], item: str) -> tuple[Line, ...]:
    """The lines about users or groups by their names, who then get something else than everybody."""
    return tuple(line for line in lines if line.domain not in ("*", _ROOT) and line.item == item)
