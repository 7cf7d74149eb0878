"""What is in the tpu-env attribute, and how is it written so that every reader gets the same bytes? Pure: no files.

The readers are bash and dash (`set -e; set -a; . FILE`) and systemd (`EnvironmentFile=`). The attribute is a flat map
in YAML, and its scalars are taken as they are typed: `no` is no switch, 0123 no number and 10:30 no number of minutes.

Two rules say what cannot be written. A document that has no clear meaning is refused as a whole (BadAnswer), so that
the last good file stays. An entry that some reader could not take is left out, and named:
 * its name is none for a shell, or one that the shell or the loader of programs keeps for itself;
 * its value is not one line of text: a list, a map, a block, a control character other than tab, a line separator, or a
   code point that Unicode keeps from being a character (systemd refuses a whole file for one);
 * both together are longer than what the kernel hands to a new program (128 KiB).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tpuagent.errors import BadAnswer
from tpuagent.metadata.policy import is_name
from tpuagent.values import dataclass

if TYPE_CHECKING:
    import yaml

LONGEST_ENTRY = 128 * 1024 - 2  # MAX_ARG_STRLEN without "=" and NUL
LONGEST_DOCUMENT = 256 * 1024  # what the metadata server takes as one value
# Read-only, changed or counted by a shell itself, run as code by it, or what it finds programs and words with.
_SHELL_NAMES = frozenset(
    """
    _ CDPATH CHILD_MAX COLUMNS COPROC DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE FCEDIT FIGNORE
    FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HOME HOSTFILE IFS IGNOREEOF INPUTRC INSIDE_EMACS LANG LANGUAGE LINENO
    LINES LOGNAME MAIL MAILCHECK MAILPATH MAPFILE OLDPWD OPTARG OPTERR OPTIND PATH PIPESTATUS POSIXLY_CORRECT PPID PS0
    PS1 PS2 PS3 PS4 PWD RANDOM REPLY SECONDS SHELL SHELLOPTS SHLVL SRANDOM TERM TIMEFORMAT TMOUT TMPDIR UID USER
    auto_resume histchars
    GCONV_PATH GETCONF_DIR GLIBC_TUNABLES HOSTALIASES LOCALDOMAIN LOCPATH NIS_PATH NLSPATH RES_OPTIONS TZDIR
    """.split()  # noqa: SIM905  a wall of quotes
)
_SHELL_PREFIXES = (
    "BASH", "COMP_", "HIST", "LC_", "LD_", "MALLOC_", "PERL5", "PROMPT_", "PYTHON", "READLINE_", "RESOLV_",
)  # fmt: skip
_NO_CHARACTERS = "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0, 0x110000, 0x10000))
_UNWRITABLE = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef{_NO_CHARACTERS}]")
_NEED_BACKSLASH = re.compile(r'(["\\`$])')
# The same facts have other names in the two dialects of the attribute.
DIALECTS = (("TPU_ACCELERATOR_TYPE", "ACCELERATOR_TYPE"), ("TPU_WORKER_ID", "WORKER_ID"))

Values = Mapping[str, str]


@dataclass(frozen=True)
class LeftOut:
    """An entry that is not written: the line it is on, and why."""

    name: str
    line: int
    why: str


@dataclass(frozen=True)
class TpuEnv:
    """What the attribute says, in its own order, and what of it cannot be written."""

    values: Values
    left_out: tuple[LeftOut, ...] = ()


# Reading ----------------------------------------------------------------------------------------------------------


def parse_tpu_env(text: str) -> TpuEnv:
    """The map in the attribute. BadAnswer, with the line, when the text has no clear meaning or nothing to write."""
    values: dict[str, str] = {}
    left_out: list[LeftOut] = []
    lines: dict[str, int] = {}
    if len(text) > LONGEST_DOCUMENT:
        raise _bad(f"it is longer than {LONGEST_DOCUMENT // 1024} KiB")
    for entry in _entries(text):
        if entry.name in lines:
            raise _bad(f"{entry.name} is on line {lines[entry.name]} and again on line {entry.line}")
        lines[entry.name] = entry.line
        if why := entry.fault or name_fault(entry.name) or value_fault(entry.name, entry.value):
            left_out.append(LeftOut(entry.name, entry.line, why))
        else:
            values[entry.name] = entry.value
    if not values:
        raise _bad(
            f"nothing in it can be written: {left_out[0].name}: {left_out[0].why}" if left_out else "it is empty"
        )
    return TpuEnv(values, tuple(left_out))


def name_fault(name: str) -> str | None:
    """Why no variable can have this name; None when one can."""
    if not is_name(name):
        return "a shell takes no such name: letters, digits and _, and no digit first"
    if name in _SHELL_NAMES or name.startswith(_SHELL_PREFIXES):
        return "the shell or the loader of programs keeps this name for itself"
    return None


def value_fault(name: str, value: str) -> str | None:
    """Why no reader would give this value back; None when all do."""
    if found := _UNWRITABLE.search(value):
        return f"its value has U+{ord(found[0]):04X}, which not every reader gives back"
    if len(name) + len(value.encode()) > LONGEST_ENTRY:
        return "it is longer than what the kernel hands to a program (128 KiB)"
    return None


def accelerator_type(values: Values) -> str | None:
    """What kind of TPU this host is part of, in the words of either dialect; None when neither says so."""
    return _either(values, DIALECTS[0])


def worker_id(values: Values) -> str | None:
    """Which worker of its slice this host is, as typed: "0" is one, and an empty or missing id is unknown (None)."""
    return _either(values, DIALECTS[1])


def _either(values: Values, names: Iterable[str]) -> str | None:
    return next((values[name] for name in names if values.get(name)), None)


# Writing ----------------------------------------------------------------------------------------------------------


def with_aliases(values: Values) -> Values:
    """The same facts under the names of both dialects; what is there already is never changed."""
    added = dict(values)
    for pair in DIALECTS:
        for name, other in (pair, pair[::-1]):
            if name in values and other not in values:
                added[other] = values[name]
    return added


def render_tpu_env(values: Values) -> str:
    """KEY="value" lines: what shells and systemd read, and scripts that grep for `^KEY=` and cut at the quote."""
    return "".join(f'{name}="{_NEED_BACKSLASH.sub(_escaped, value)}"\n' for name, value in values.items())


def render_second(values: Values) -> str:
    """KEY: 'value' lines, the form of /etc/tpu/tpu-env."""
    return "".join("{}: '{}'\n".format(name, value.replace("'", "''")) for name, value in values.items())


def _escaped(found: re.Match[str]) -> str:
    return "\\" + found[0]


# YAML -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    name: str
    value: str
    line: int
    fault: str = ""


def _bad(why: str) -> BadAnswer:
    return BadAnswer("use the tpu-env attribute", why)


def _entries(text: str) -> Iterator[_Entry]:
    import yaml

    try:
        # Events and not nodes: a node no longer tells an alias from what it stands for.
        events = _one_map(yaml.parse(text, Loader=yaml.SafeLoader))
        for key in events:
            name, fault, _ = _text(key, events)
            value, value_fault, line = _text(next(events), events)
            yield _Entry(name, value, line, "its name is no text" if fault else value_fault)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise _bad(f"{where}it is not YAML: {fault.problem or fault.context}") from None
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        raise _bad(f"line {line}: it is not YAML: U+{ord(text[fault.position]):04X} is not allowed in it") from None


def _one_map(events: Iterator[yaml.Event]) -> Iterator[yaml.Event]:
    """The events between the begin and the end of the one map that the text should be."""
    import yaml

    depth = 0
    documents = 0
    for event in events:
        if getattr(event, "anchor", None):
            raise _bad(f"line {_line(event)}: it has an anchor or an alias, so what it says is unclear")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _bad(f"line {_line(event)}: a second document begins")
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if isinstance(event, yaml.NodeEvent) and depth == 0 and not isinstance(event, yaml.MappingStartEvent):
            if isinstance(event, yaml.ScalarEvent) and event.value == "" and event.implicit[0]:
                continue  # "---" and nothing
            raise _bad(f"line {_line(event)}: keys with values are expected, like TPU_WORKER_ID: '0'")
        if depth > 0:
            yield event
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1


def _line(event: yaml.Event, *, end: bool = False) -> int:
    mark = event.end_mark if end else event.start_mark
    return mark.line + 1 if mark else 0


def _text(event: yaml.Event, rest: Iterator[yaml.Event]) -> tuple[str, str, int]:
    """The text of a scalar, what is wrong with it, and its line; a list or a map is skipped, and wrong."""
    import yaml

    line = _line(event)
    if isinstance(event, yaml.ScalarEvent):
        if event.style in ("|", ">") or _line(event) != _line(event, end=True):
            return event.value, "its value goes over several lines", line
        return event.value, "", line
    depth = 1
    while depth:
        inner = next(rest)
        depth += isinstance(inner, yaml.CollectionStartEvent) - isinstance(inner, yaml.CollectionEndEvent)
    return "?", "its value is a list or a map", line
