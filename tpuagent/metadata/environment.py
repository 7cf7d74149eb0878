"""What must change in /etc/environment? Pure: text in, text out. How PAM reads it is in pam.py."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field

from tpuagent.metadata.pam import Statement, last_words, parse_environment, report_odd
from tpuagent.metadata.policy import INTERPRETER, LONGEST_LINE, EnvironmentPolicy, render_line

FILE = "/etc/environment"


@dataclass(frozen=True)
class Edit:
    """The text that should be in the file, the lines in it that are the agent's own, and what to tell.

    `changes` are done by the edit, `kept` are somebody else's values that differ from the wanted ones, `odd` is what
    PAM does not read as it looks.
    """

    text: str
    ours: frozenset[str]
    changes: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()


def plan_environment(
    text: str, policy: EnvironmentPolicy, ours: frozenset[str], is_interpreter: Callable[[str], bool]
) -> Edit:
    """The edit that gives the file the wanted variables and leaves every other byte alone.

    `ours`: the lines that the agent wrote earlier. Those follow the configuration; any other value is an
    administrator's own and stays, unless it is forced, or names an interpreter that is none.
    """
    work = _Work(text.split("\n"), ours, is_interpreter)
    for name, value in policy.wanted:
        work.want(name, value, forced=name in policy.force)
    work.drop_unwanted({name for name, _ in policy.wanted})
    new = "\n".join(work.lines)
    return Edit(new, work.still_ours(), tuple(work.changes), tuple(work.kept), tuple(report_odd(new)))


def render_diff(old: str, new: str, path: str = FILE) -> str:
    """The change as `diff -u` shows it, printable whatever the encoding of the file is."""
    lines = difflib.unified_diff(_with_ends(old), _with_ends(new), path, path)
    shown = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    return shown.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _with_ends(text: str) -> list[str]:
    """Lines as PAM has them: str.splitlines would split at more than line ends."""
    lines = [f"{line}\n" for line in text.split("\n")]
    return [*lines[:-1], lines[-1][:-1]] if lines[-1] != "\n" else lines[:-1]


# Changing ---------------------------------------------------------------------------------------------------------


@dataclass
class _Work:
    """An edit under way."""

    lines: list[str]
    ours: frozenset[str]
    is_interpreter: Callable[[str], bool]
    changes: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    statements: list[Statement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reread()

    def want(self, name: str, value: str, *, forced: bool) -> None:
        line = render_line(name, value)
        if name == INTERPRETER and not self.is_interpreter(value):
            self.kept.append(f"{name}: {value} is no interpreter, so the agent writes no such line")
            return
        if len(line) > LONGEST_LINE:
            self.kept.append(f"{name}: the line would be longer than {LONGEST_LINE} bytes")
            return
        found = last_words(self.statements).get(name)
        if found is None or found.value is None:
            self._add(line)
            self.changes.append(f"{line} added")
        elif found.value != value:
            self._settle(found, found.value, line, forced=forced)

    def _settle(self, found: Statement, value: str, line: str, *, forced: bool) -> None:
        name = found.name
        gone = name == INTERPRETER and value != "" and not self.is_interpreter(value)
        if self._is_ours(found):
            self._replace(found, line, f"{line} instead of {value}, which was the agent's own")
        elif gone:
            self._replace(found, line, f"{line} instead of {value}, which is no interpreter")
        elif forced:
            self._replace(found, line, f"{line} instead of {value}, forced by the configuration")
        else:
            wanted = line.partition("=")[2]
            self.kept.append(f"{name} is {value!r} in the file and stays; the configuration has {wanted}")

    def drop_unwanted(self, wanted: set[str]) -> None:
        """Take away the agent's own lines of variables that it is no longer to manage."""
        for statement in reversed(self.statements):
            if statement.name and statement.name not in wanted and self._is_ours(statement):
                self.changes.append(f"{self.lines[statement.first]} taken away")
                del self.lines[statement.first]

    def still_ours(self) -> frozenset[str]:
        """The agent's own lines that are in the text now."""
        return (self.ours | self.written) & set(self.lines)

    def _reread(self) -> None:
        self.statements = parse_environment("\n".join(self.lines))

    def _is_ours(self, statement: Statement) -> bool:
        return statement.first == statement.last and self.lines[statement.first] in self.ours

    def _replace(self, statement: Statement, line: str, change: str) -> None:
        self.lines[statement.first : statement.last + 1] = [line]
        self.written.add(line)
        self.changes.append(change)
        self._reread()

    def _add(self, line: str) -> None:
        if self.statements and self.statements[-1].dangling:
            self.lines.insert(self.statements[-1].first, line)
        elif self.lines[-1]:  # no line end: PAM 1.4 does not read such a last line
            self.lines += [line, ""]
        else:
            self.lines.insert(len(self.lines) - 1, line)
        self.written.add(line)
        self._reread()
