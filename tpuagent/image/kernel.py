"""Which parameters does a kernel's command line have? Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tpuagent.values import dataclass

_LINUX = re.compile(r"\s*linux(?:16|efi)?\s+\S+(?:\s+(?P<parameters>.*))?")
_ENTRY = re.compile(r"\s*menuentry\s+(?:'(?P<single>[^']*)'|\"(?P<double>[^\"]*)\")")
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?GRUB_CMDLINE_LINUX(?:_DEFAULT)?\+?=(?P<value>.*)")


@dataclass(frozen=True)
class Entry:
    """An entry of GRUB's menu, and the parameters of its kernel."""

    title: str
    parameters: str


def parse_parameters(line: str) -> dict[str, str | None]:
    """The last value of each parameter, None for one without; after `--` come those of init.

    A quoted value may have blanks in it, as the kernel takes it.
    """
    found: dict[str, str | None] = {}
    for word in _words(line):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        found[name.strip('"')] = value.strip('"') if equals else None
    return found


def has_value(found: Mapping[str, str | None], name: str, value: str) -> bool:
    """Whether a parameter has all parts of a value; others beside them do no harm."""
    parts = (found.get(name) or "").split(",")
    return set(value.split(",")) <= set(parts)


def show(found: Mapping[str, str | None], name: str) -> str:
    """A parameter as it stands on the line."""
    if name not in found:
        return "not set"
    value = found[name]
    return name if value is None else f"{name}={value}"


def parse_grub(text: str) -> list[Entry]:
    """The kernels of a grub.cfg in the order of its menu, without comments."""
    entries, title = [], ""
    for line in text.splitlines():
        if found := _ENTRY.match(line):
            title = found["single"] or found["double"] or ""
        elif found := _LINUX.match(line):
            entries.append(Entry(title, found["parameters"] or ""))
    return entries


def parameters_in_defaults(text: str) -> Iterator[tuple[str, str | None]]:
    """The parameters that a file of /etc/default/grub's kind gives, as far as it says so in plain words."""
    for line in text.splitlines():
        if found := _ASSIGNMENT.fullmatch(line):
            yield from parse_parameters(_plain(found["value"])).items()


def _plain(value: str) -> str:
    """What a shell makes of a value, without what it would have to run."""
    text = value.strip()
    if text[:1] in ("'", '"'):
        end = text.find(text[0], 1)
        return text[1 : end if end > 0 else len(text)]
    return text.partition(" ")[0]


def _words(line: str) -> Iterator[str]:
    word, quoted = "", False
    for character in line:
        if character == '"':
            quoted = not quoted
        if character.isspace() and not quoted:
            if word:
                yield word
            word = ""
        else:
            word += character
    if word:
        yield word
