"""What can the metadata server answer, and how long is it waited for? Values, and the back-off as a pure function."""

from __future__ import annotations

from tpuagent.errors import BadAnswer
from tpuagent.values import dataclass


@dataclass(frozen=True)
class Limits:
    """Seconds for one attempt at one host, and bytes for one answer.

    `read_s` is the longest silence, `total_s` everything from the name's resolving to the last byte. All of an
    instance's metadata together is at most 512 KiB.
    """

    connect_s: float = 2.0
    read_s: float = 5.0
    total_s: float = 10.0
    size: int = 1024 * 1024


@dataclass(frozen=True)
class Found:
    """The value of a key. `etag` None: the server gave none, so it cannot be asked for what comes after."""

    body: bytes
    etag: str | None = None

    def text(self, what: str) -> str:
        """The value as text; BadAnswer when it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as fault:
            line = self.body.count(b"\n", 0, fault.start) + 1
            raise BadAnswer(f"use {what}", f"line {line}: it is not UTF-8") from None


@dataclass(frozen=True)
class NotDefined:
    """The server has no such key."""


@dataclass(frozen=True)
class IsFolder:
    """The key is the name of a folder; its keys stand below it."""


Answer = Found | NotDefined | IsFolder


class Interrupted(Exception):
    """The caller was asked to do something else."""


@dataclass(frozen=True)
class Backoff:
    """How long to wait between attempts."""

    first_s: float
    most_s: float


def next_delay_s(backoff: Backoff, failures: int) -> float:
    """Seconds to wait after so many failures in a row: doubles from `first_s` to `most_s`.

    Jitter is the caller's, so that this stays a pure function.
    """
    return min(backoff.most_s, backoff.first_s * 2 ** min(failures - 1, 32)) if failures > 0 else 0.0
