"""What does a check have to tell? One row for each expectation. Values."""

from __future__ import annotations

from tpuagent.values import dataclass

OK = "ok"
WRONG = "wrong"
WARNING = "warning"  # works, or was switched off on purpose, and somebody should know
NOT_CHECKED = "not checked"  # nothing to expect: no such thing on this host, or an image that is not booted
UNKNOWN = "unknown"  # it should have been looked at, and could not be


@dataclass(frozen=True)
class Row:
    """One expectation and what was found. `mend`: the command, or the deed, that makes it right."""

    what: str
    expected: str
    found: str
    verdict: str = OK
    mend: str = ""


def exit_code(rows: tuple[Row, ...]) -> int:
    """1: something is wrong. 2: nothing is known to be wrong, and not everything could be looked at."""
    verdicts = {row.verdict for row in rows}
    return 1 if WRONG in verdicts else 2 if UNKNOWN in verdicts else 0
