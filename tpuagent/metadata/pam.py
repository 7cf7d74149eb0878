"""How does PAM read /etc/environment? Pure: text in, statements out.

The rules are those of pam_env in PAM 1.4 to 1.7, and no shell's: `#` cuts a line even inside quotes, a quote is taken
off at the very begin and the very end of a value and nowhere else, a backslash at the end of a line joins the next one
to it, and a bare name without `=` unsets the variable. The text is to be decoded with `surrogateescape`, so that bytes
of any encoding come through unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tpuagent.values import dataclass

# Bytes of a line with all that is joined to it. Longer: PAM 1.4 and 1.5 read neither it nor anything below.
_BUFFER = 8190
_OLD_BUFFER = 1022
_BLANKS = " \t"
_QUOTES = ('"', "'")


@dataclass(frozen=True)
class Statement:
    """What PAM takes as one line: the lines `first` to `last` (from 0). `value` None: it unsets the variable.

    `fault`: PAM makes nothing of it, for this reason; `name` is then empty. `dangling`: it ends in a backslash, and so
    would swallow whatever is added below.
    """

    first: int
    last: int
    name: str = ""
    value: str | None = None
    fault: str = ""
    dangling: bool = False


def effective(text: str) -> dict[str, str]:
    """The variables that a login gets from the file."""
    return {one.name: one.value for one in last_words(parse_environment(text)).values() if one.value is not None}


def parse_environment(text: str) -> list[Statement]:
    """The statements of the file by the rules of PAM 1.4 and 1.5, those after an unreadable one included."""
    found: list[Statement] = []
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        parts, last = _assemble(lines, at)
        if parts:
            found.append(_statement(at, last, "".join(parts)) if last < len(lines) else _unended(at, len(lines) - 1))
        at = last + 1
    return found


def _assemble(lines: list[str], at: int) -> tuple[list[str], int]:
    """The parts that a backslash joins, and the last line of them: beyond the end when the last part asks for more."""
    parts: list[str] = []
    for number in range(at, len(lines)):
        line = lines[number]
        begin = line.lstrip(_BLANKS)
        if not begin or begin.startswith("#"):
            if not parts:
                return [], number
            continue  # PAM goes on looking for the rest
        whole, cut, _ = line.partition("#")
        if not cut and line.rstrip(_BLANKS).endswith("\\"):
            parts.append(line.rstrip(_BLANKS)[:-1])
            continue
        return [*parts, whole], number
    return parts, len(lines)


def _unended(first: int, last: int) -> Statement:
    return Statement(first, last, fault="it ends in a backslash, and nothing follows", dangling=True)


def _statement(first: int, last: int, joined: str) -> Statement:
    name, equals, value = joined.lstrip(_BLANKS).removeprefix("export ").partition("=")
    if "\0" in joined:
        return Statement(first, last, fault="it has a NUL in it, and older PAM reads nothing from there on")
    if equals and not name:
        return Statement(first, last, fault="it begins with '=', and older PAM refuses every login for it")
    if not all(sign == "_" or (sign.isascii() and sign.isalnum()) for sign in name):
        return Statement(first, last, fault=f"PAM takes {name!r} for no name and ignores it")
    return Statement(first, last, name, _unquoted(value) if equals else None)


def _unquoted(value: str) -> str:
    if not value.startswith(_QUOTES):
        return value
    return value[1:-1] if value[1:].endswith(_QUOTES) else value[1:]


def last_words(statements: Iterable[Statement]) -> dict[str, Statement]:
    """The statement that decides about each variable: the last one counts."""
    return {statement.name: statement for statement in statements if statement.name}


# Telling ----------------------------------------------------------------------------------------------------------


def report_odd(text: str) -> Iterator[str]:
    """What PAM does not read as it looks; for a person who can mend it. The agent never does."""
    lines = text.split("\n")
    where: dict[str, list[str]] = {}
    for one in parse_environment(text):
        at = f"line {one.first + 1}"
        size = len("\n".join(lines[one.first : one.last + 1]).encode("utf-8", "surrogateescape"))
        if one.fault:
            yield f"{at}: {one.fault}"
        if size > _OLD_BUFFER:
            limit = f"1.4 and 1.5 ({_BUFFER} bytes)" if size > _BUFFER else "before 1.4 (1 KiB)"
            yield f"{at}: it is too long for PAM {limit}, which reads nothing from there on"
        if one.value and (one.value.endswith("\r") or one.value.rstrip().endswith(_QUOTES)):
            yield f"{at}: the value of {one.name} keeps what ends it: {one.value!r}"
        if one.name and one.value is not None:
            where.setdefault(one.name, []).append(str(one.first + 1))
    for name, numbers in where.items():
        if len(numbers) > 1:
            yield f"lines {', '.join(numbers)}: {name} is set again and again; the last one counts"
    if lines[-1].strip(_BLANKS):
        yield f"line {len(lines)}: it has no line end, and PAM 1.4 does not read it"
