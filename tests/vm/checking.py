"""What does `tpuagent check` say in a guest?"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from tpuagent.image.rows import WARNING, WRONG

from .guest import Guest


@dataclass(frozen=True)
class Row:
    """A row as `--json` prints it."""

    what: str
    expected: str
    found: str
    verdict: str
    mend: str


def look(guest: Guest) -> tuple[int, list[Row]]:
    """The exit code, and the rows."""
    result = guest.run(["tpuagent", "check", "--json"])
    return result.code, [Row(**row) for row in json.loads(result.stdout)]


def faults(rows: Iterable[Row]) -> set[tuple[str, str]]:
    """What is wrong or warned of, and which of both."""
    return {(row.what, row.verdict) for row in rows if row.verdict in (WRONG, WARNING)}
