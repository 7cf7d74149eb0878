"""What does a check say of one thing? A value."""

from __future__ import annotations

from tpuagent.values import dataclass

OK, WRONG, WARNING, SKIPPED, UNKNOWN = "ok", "wrong", "warning", "skipped", "unknown"


@dataclass(frozen=True)
class Finding:
    """`verdict` is one of

    ok       as expected
    wrong    TPUs, or what uses them, will not work as documented
    warning  worth knowing, and not wrong by itself
    skipped  means nothing here: no TPUs, an image that has not been booted
    unknown  could not be looked at
    `mend` is the command that makes it right, or what a person has to do.
    """

    what: str
    expected: str
    found: str
    verdict: str
    mend: str = ""


def judge(what: str, expected: str, found: str, mend: str, *, good: bool, otherwise: str = WRONG) -> Finding:
    """A finding that is ok or otherwise; only the latter is to be mended."""
    return Finding(what, expected, found, OK if good else otherwise, "" if good else mend)
