"""How this process starts others that cannot outlive it, however it ends."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any


def start(argv: Sequence[str], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a child that the kernel kills when the thread that called this ends; its stderr is added to `log`."""
    with log.open("ab") as stderr:
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *argv], stderr=stderr, **options)


def stop(child: subprocess.Popen[bytes]) -> None:
    """Kill it if it still runs, and wait until it has ended."""
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        _close(pipe)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe:
        pipe.close()
