"""Is a log line one line, without colours, whatever the values are?"""

from __future__ import annotations

import ast
import os
import pty
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import REPOSITORY, RunPython
from tpuagent import log


@pytest.fixture(autouse=True)
def _unconfigured() -> Iterator[None]:
    yield
    log.configure(journal=False)


def test_a_line_has_its_level_its_event_and_its_facts_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(journal=False)
    log.get_logger().info("function_bound", address="0000:00:04.0", was=None, group=7, took_ms=6)
    log.get_logger().warning("pass_incomplete", reason="no IOMMU group (EINVAL)")
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "info function_bound address=0000:00:04.0 was=None group=7 took_ms=6",
        "warning pass_incomplete reason='no IOMMU group (EINVAL)'",
    ]
    assert said.out == ""


_SAY_TO_THE_JOURNAL = """
import os, sys
from tpuagent import log
found = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{found.st_dev}:{found.st_ino}"
log.configure(journal=log.is_journal(2), debug=True)
for level in ("debug", "info", "warning", "error"):
    for number in range(int(sys.argv[1])):
        getattr(log.get_logger(), level)("it_happened", number=number, name="\\udc80")
print("done")
"""


def test_the_journal_gets_its_priorities(run_python: RunPython) -> None:
    said = run_python("-c", _SAY_TO_THE_JOURNAL, "1")
    assert said.stderr.splitlines() == [rf"<{level}>it_happened number=0 name='\udc80'" for level in (7, 6, 4, 3)]


@pytest.mark.parametrize("gone", [False, True])
def test_a_journal_that_reads_no_more_does_not_stop_the_agent(gone: bool) -> None:
    # More than a pipe holds. The journal itself hangs while it reads an attribute of a function that is being unbound.
    reader, writer = os.pipe()
    if gone:
        os.close(reader)
    command = [sys.executable, "-c", _SAY_TO_THE_JOURNAL, "1000"]
    done = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=writer, text=True, timeout=20, check=True
    )
    assert done.stdout == "done\n"
    os.close(writer)
    if not gone:
        os.close(reader)


_ASK = """
import os
from tpuagent import log
mine, other = os.fstat(2), os.fstat(1)
for stream in ("", "1:2", "nonsense", f"{other.st_dev}:{other.st_ino}", f"{mine.st_dev}:{mine.st_ino}"):
    os.environ["JOURNAL_STREAM"] = stream
    print(log.is_journal(2))
del os.environ["JOURNAL_STREAM"]
print(log.is_journal(2))
"""


def test_the_variable_alone_which_a_session_inherits_makes_no_journal(run_python: RunPython) -> None:
    assert run_python("-c", _ASK).stdout.split() == ["False"] * 4 + ["True", "False"]


def test_debug_lines_come_only_when_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    log.configure(journal=False)
    log.get_logger().debug("event_seen", action="bind")
    assert capsys.readouterr().err == ""
    log.configure(journal=False, debug=True)
    log.get_logger().debug("event_seen", action="bind")
    assert capsys.readouterr().err == "debug event_seen action=bind\n"


def test_nothing_is_loaded_for_a_line_that_is_dropped(run_python: RunPython) -> None:
    said = run_python("-c", "import sys; from tpuagent import log; log.get_logger().debug('x'); print(*sys.modules)")
    assert "structlog" not in said.stdout.split()


@pytest.mark.parametrize("value", ["two words", "two\nlines", 'a "quote"', "", "\x1b[31mred", "a\ttab"])
def test_a_value_that_would_break_the_line_is_quoted(capsys: pytest.CaptureFixture[str], value: str) -> None:
    log.configure(journal=False)
    log.get_logger().info("it_happened", reason=value, next=1)
    line = capsys.readouterr().err
    quoted = line.removeprefix("info it_happened reason=").removesuffix(" next=1\n")
    assert ast.literal_eval(quoted) == value


@given(st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_stays_on_one_line_and_can_be_printed(capsys: pytest.CaptureFixture[str], value: str) -> None:
    log.configure(journal=False)
    log.get_logger().info("it_happened", reason=value)
    line = capsys.readouterr().err
    assert line.endswith("\n")
    assert line[:-1].isprintable()


_SAY = """
from tpuagent import log
log.configure(journal=False)
log.get_logger().error("it_failed", reason="x")
"""


def test_not_even_a_terminal_gets_colour_codes() -> None:
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-c", _SAY], cwd=REPOSITORY, stdin=theirs, stdout=theirs, stderr=theirs, check=True
        )
        assert os.read(ours, 1000) == b"error it_failed reason=x\r\n"
    finally:
        os.close(ours)
        os.close(theirs)
