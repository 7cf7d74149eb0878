"""Which files does a folder of drop-ins consist of, and what do systemd and modprobe read in them? Pure.

The same name in /etc stands in the place of one in /usr/lib, whatever it has in it; files are read in the order of
their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from tpuagent.image.pamlimits import UNLIMITED
from tpuagent.values import dataclass

FOLDERS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("B", "K", "M", "G", "T", "P", "E"))} | {"": 1}
_AMOUNT = re.compile(r"(?P<whole>[0-9]+)(?P<rest>(?P<part>\.[0-9]+)?\s*(?P<unit>[BKMGTPE]?))")


def order(names: Mapping[str, Sequence[str]], ending: str = ".conf") -> tuple[str, ...]:
    """The paths that are read, in order. `names`: the folders, the most important first, and what is in each."""
    chosen: dict[str, str] = {}
    for folder, inside in names.items():
        for name in inside:
            if name.endswith(ending) and not name.startswith("."):
                chosen.setdefault(name, f"{folder}/{name}")
    return tuple(chosen[name] for name in sorted(chosen))


def logical_lines(text: str, comments: str = "#") -> Iterator[tuple[int, str]]:
    """Lines with what a backslash at their end joins to them, each with the number of its first; no comments."""
    number, joined = 0, ""
    for at, raw in enumerate(text.splitlines(), 1):
        if not joined:
            number = at
        if raw.lstrip()[:1] in tuple(comments) and raw.strip():
            continue
        if raw.endswith("\\"):
            joined += raw[:-1] + " "
            continue
        if line := (joined + raw).strip():
            yield number, line
        joined = ""
    if joined.strip():
        yield number, joined.strip()


# systemd ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """A setting as it was typed, and where."""

    text: str
    origin: str


def parse_manager(text: str, path: str) -> tuple[tuple[str, Said], ...]:
    """The settings of [Manager], in their order; of equal ones the last that systemd can read counts."""
    found, section = [], ""
    for number, line in logical_lines(text, "#;"):
        if line.startswith("["):
            section = line
            continue
        name, equals, value = line.partition("=")
        if section == "[Manager]" and equals:
            found.append((name.strip(), Said(value.strip(), f"{path}:{number}")))
    return tuple(found)


def parse_rlimit(text: str, *, units: bool) -> tuple[int | None, int | None]:
    """The soft and the hard limit in systemd's form; None: unlimited. `units`: it is about bytes, and may have one.

    ValueError when it is none. systemd then leaves what was said before as it is; an empty value is such a one.
    """
    first, colon, second = text.partition(":")
    soft = _rlimit(first, units)
    hard = _rlimit(second, units) if colon else soft
    if hard is not None and (soft is None or soft > hard):
        raise ValueError(f"{text!r} is no limit: the first is above the second")
    return soft, hard


def _rlimit(text: str, units: bool) -> int | None:
    if text in UNLIMITED[:2]:
        return None
    found = _AMOUNT.fullmatch(text)
    if not found or (found["rest"] and not units):
        raise ValueError(f"{text!r} is no limit")
    unit = _UNITS[found["unit"]]
    return int(found["whole"]) * unit + int(float(found["part"] or 0) * unit)


# modprobe ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Directive:
    """A line for modprobe: options, blacklist or install, the module's name with `_` for `-`, and the rest."""

    verb: str
    module: str
    rest: str
    origin: str


def parse_modprobe(text: str, path: str) -> tuple[Directive, ...]:
    """The lines of one file."""
    found = []
    for number, line in logical_lines(text):
        verb, *words = line.split(None, 2)
        if words:
            rest = words[1] if len(words) > 1 else ""
            found.append(Directive(verb, words[0].replace("-", "_"), rest, f"{path}:{number}"))
    return tuple(found)


def last_parameter(directives: Sequence[Directive], module: str, name: str) -> tuple[str, str] | None:
    """The value that a parameter gets when the module is loaded, and where that stands: the last one counts."""
    found = None
    for directive in directives:
        if directive.verb == "options" and directive.module == module.replace("-", "_"):
            for word in directive.rest.split():
                key, equals, value = word.partition("=")
                if equals and key.replace("-", "_") == name:
                    found = value.strip('"'), directive.origin
    return found


def refusal(directives: Sequence[Directive], module: str) -> Directive | None:
    """The line by which another command, one that does nothing, stands in the place of loading a module."""
    for one in directives:
        program = one.rest.partition(" ")[0].rpartition("/")[2]
        if (one.verb, one.module) == ("install", module.replace("-", "_")) and program in ("false", "true"):
            return one
    return None
