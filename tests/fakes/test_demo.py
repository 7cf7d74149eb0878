"""Does the demonstration come out as told, readable and plain where there is no terminal?"""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess


def test_the_demonstration_comes_out_as_told(run_python: Callable[..., CompletedProcess[str]]) -> None:
    done = run_python("-m", "tests.fakes.demo", "--fast")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stdout.count("== ") == 10
