"""What will GRUB put on the kernel's command line, and which file says so? Pure.

Settings are shell. What is read here is what people write there: assignments with quotes, `+=`, and variables in them.
A value that only a shell could find out (a command substitution) is not guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tpuagent.image.cmdline import last_value, parse_cmdline
from tpuagent.values import dataclass

LINUX, DEFAULT = "GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"
_ASSIGNMENT = re.compile(r"[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_]*)(\+?=)")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}$`\"'\\]*))?\})")
_ENTRY = re.compile(r"\s*menuentry\s+('[^']*'|\"[^\"]*\"|\S+)")
_KERNEL = re.compile(r"\s*linux(?:16|efi)?\s+\S+(.*)")
_RECOVERY = ("single", "recovery")


@dataclass(frozen=True)
class Entry:
    """A menu entry that boots a kernel. `recovery`: one for repairs, which boots without the usual parameters."""

    title: str
    line: str
    recovery: bool


def parse_entries(text: str) -> tuple[Entry, ...]:
    """The entries of a generated grub.cfg."""
    found, title = [], ""
    for line in text.splitlines():
        if heading := _ENTRY.match(line):
            title = heading[1].strip("'\"")
        elif kernel := _KERNEL.match(line):
            names = {name for name, _ in parse_cmdline(kernel[1])}
            found.append(Entry(title, kernel[1].strip(), "recovery mode" in title or bool(names & set(_RECOVERY))))
    return tuple(found)


# Settings ---------------------------------------------------------------------------------------------------------


def parse_settings(text: str, known: dict[str, str]) -> dict[str, str]:
    """The variables after a file of settings was read; `known` are those before. Other lines do not count."""
    values = dict(known)
    at = 0
    while at < len(text):
        found = _ASSIGNMENT.match(text, at)
        if not found:
            at = _next_line(text, at)
            continue
        value, at = _word(text, found.end(), values)
        if value is not None:
            values[found[1]] = values.get(found[1], "") + value if found[2] == "+=" else value
        while at < len(text) and text[at] in " \t;":
            at += 1
        if at < len(text) and text[at] == "#":
            at = _next_line(text, at)
        elif at < len(text) and text[at] == "\n":
            at += 1
    return values


def _next_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _word(text: str, at: int, values: dict[str, str]) -> tuple[str | None, int]:
    """The word of a shell that begins here, and where it ends; None for one that only a shell can tell."""
    parts: list[str] = []
    quote, known = "", True
    while at < len(text):
        sign = text[at]
        if not quote and sign in " \t\n;&|":
            break
        if quote == "'":
            parts.append("" if sign == "'" else sign)
            quote = "" if sign == "'" else quote
        elif sign == "\\":
            at += 1
            follows = text[at : at + 1]
            plain = quote and follows not in '"\\$`\n'
            parts.append(("\\" if plain else "") + ("" if follows == "\n" else follows))
        elif sign == '"' or (sign == "'" and not quote):
            quote = "" if quote else sign
        elif sign == "$" and (variable := _VARIABLE.match(text, at)):
            parts.append(values.get(variable[1] or variable[2], "") or variable[3] or "")
            at = variable.end() - 1
        else:
            known = known and sign != "`" and not (sign == "$" and text[at + 1 : at + 2] in ("(", "{"))
            parts.append(sign)
        at += 1
    return "".join(parts) if known else None, at


# Who says so ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forecast:
    """What update-grub would put on an ordinary entry's line; `said_by`: the file that decided about each parameter."""

    line: str
    said_by: dict[str, str]


def forecast(files: Sequence[tuple[str, str]], drop_in: str, ours: Sequence[tuple[str, str]]) -> Forecast:
    """What becomes of the files of settings (path and text) in the order in which they are read.

    `drop_in` is our own, which is more than assignments: it puts `ours` at the end of the second variable.
    """
    values: dict[str, str] = {}
    said_by: dict[str, str] = {}
    before: dict[str, str | None] = {}
    for path, text in files:
        if path == drop_in:
            added = " ".join(f"{name}={value}" for name, value in ours) if text.strip() else ""
            values[DEFAULT] = f"{values.get(DEFAULT, '')} {added}".strip()
        else:
            values = parse_settings(text, values)
        line = _line(values)
        for name, _ in ours:
            now = last_value(line, name)
            if now != before.get(name):
                said_by[name] = path
            before[name] = now
    return Forecast(_line(values), said_by)


def _line(values: dict[str, str]) -> str:
    return " ".join(_present(values.get(name, "") for name in (LINUX, DEFAULT)))


def _present(texts: Iterator[str]) -> Iterator[str]:
    return (text for text in texts if text)
