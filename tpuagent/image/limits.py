"""Which limits does a new session get, and which does a new service? Pure.

pam_limits(8) reads limits.conf and then limits.d in the order of names; systemd-system.conf(5) its files by name, each
name from the folder that comes first. Both take the last word, with the exceptions that are said here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tpuagent.image.settings import UNLIMITED
from tpuagent.values import dataclass

_ENDLESS = frozenset({"-1", "unlimited", "infinity"})
# What stands for more than the kernel takes: a login with it fails.
_FINITE_ITEMS = frozenset({"nofile"})
_FIELDS = 4
_SIZES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
KIBI = 1024


@dataclass(frozen=True)
class Line:
    """A limit that a line sets for a domain, and where the line stands."""

    domain: str
    kind: str
    item: str
    value: str
    origin: str


@dataclass(frozen=True)
class Word:
    """A setting of systemd's, and the file that has the last word on it."""

    value: str
    origin: str


def parse_limits(text: str, path: str) -> Iterator[Line]:
    """The lines of one file; "-" sets both kinds. What pam_limits cannot read it passes over, and so does this."""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if len(words) != _FIELDS:
            continue
        domain, kind, item, value = words
        for one in ("soft", "hard") if kind == "-" else (kind,):
            if one in ("soft", "hard"):
                yield Line(domain, one, item.lower(), _named(value.lower()), f"{path}:{number}")


def session_limit(lines: Iterable[Line], user: str, kind: str, item: str) -> Line | None:
    """What a session of a user gets. `*` is for everybody but root, and gives way to a line with the user's name."""
    own = everybody = None
    for line in lines:
        if (line.kind, line.item) != (kind, item):
            continue
        if line.domain == user:
            own = line
        elif line.domain == "*" and user != "root":
            everybody = line
    return own or everybody


def is_illegal(line: Line) -> bool:
    """Whether nobody to whom it applies can log in."""
    return line.item in _FINITE_ITEMS and line.value == UNLIMITED


def parse_manager(text: str) -> dict[str, str]:
    """The settings of the section [Manager]."""
    section, found = "", {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            section = stripped
        elif section == "[Manager]" and "=" in stripped and stripped[0] not in "#;":
            name, _, value = stripped.partition("=")
            found[name.strip()] = value.strip()
    return found


def service_limit(value: str, item: str) -> tuple[str, str]:
    """Soft and hard limit as systemd's text says them, in the units of limits.d."""
    soft, colon, hard = value.partition(":")
    return _amount(soft, item), _amount(hard if colon else soft, item)


def at_least(found: str, wanted: str) -> bool:
    """Whether a limit is as high as another one."""
    if found == UNLIMITED:
        return True
    return wanted != UNLIMITED and found.isdecimal() and int(found) >= int(wanted)


def _amount(text: str, item: str) -> str:
    text = text.strip()
    if text.lower() in _ENDLESS:
        return UNLIMITED
    found = re.fullmatch("([0-9]+)([KMGT]?)", text)
    if found is None:
        return text
    amount = int(found[1]) * _SIZES[found[2]]
    if amount == 2**64 - 1:  # how systemctl shows it
        return UNLIMITED
    return str(amount // KIBI if item == "memlock" else amount)


def _named(value: str) -> str:
    return UNLIMITED if value in _ENDLESS else value
