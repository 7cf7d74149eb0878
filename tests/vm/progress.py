"""How a slow step tells a person what it is doing: one line when it starts, one when it ends, with the time it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


def say_on_stderr(line: str) -> None:
    print(f"vm: {line}", file=sys.stderr, flush=True)


@contextmanager
def timed(say: Say, what: str) -> Iterator[Say]:
    """Announce `what`; lines said inside carry the time since then; a failure is announced as one."""
    begin = time.monotonic()

    def elapsed() -> str:
        return f"{time.monotonic() - begin:.1f} s"

    say(f"{what} …")
    try:
        yield lambda line: say(f"  {elapsed()}: {line}")
    except BaseException:
        say(f"{what} … failed after {elapsed()}")
        raise
    say(f"{what} … {elapsed()}")
