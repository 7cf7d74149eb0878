"""What is read of what a container has written?"""

from __future__ import annotations

import threading

import pytest

from tests.contract.engines.engines import LIMIT_S, body, found, run
from tpuagent.containers.engine import Engine
from tpuagent.errors import NoSuchContainer


def _log(engine: Engine, name: str, lines: int | None = None, *, follow: bool = False, timestamps: bool = False) -> str:
    with engine.logs(name, lines=lines, follow=follow, timestamps=timestamps) as pieces:
        return b"".join(piece for _, piece in pieces).decode()


def test_each_piece_is_of_the_stream_that_it_was_written_to(engine: Engine, name: str) -> None:
    run(engine, name, "writes")
    with engine.logs(name, lines=None, follow=False, timestamps=False) as pieces:
        assert list(pieces) == [("stdout", b"to stdout\n"), ("stderr", b"to stderr\n")]


def test_the_last_lines_are_those_that_were_asked_for(engine: Engine, name: str) -> None:
    run(engine, name, "writes")
    assert _log(engine, name, 1) == "to stderr\n"
    assert _log(engine, name, 2) == _log(engine, name, 100) == "to stdout\nto stderr\n"
    assert _log(engine, name, 0) == ""


def test_each_line_has_its_time_when_it_is_asked_for(engine: Engine, name: str) -> None:
    started = run(engine, name, "writes").started_at
    first, second = _log(engine, name, timestamps=True).splitlines()
    assert first.endswith(" to stdout")
    assert second.endswith(" to stderr")
    assert started[:14] == first[:14]


def test_a_log_is_followed_until_its_container_ends(engine: Engine, name: str) -> None:
    engine.start(engine.create(name, body("writes")))
    assert _log(engine, name, follow=True) == "to stdout\nto stderr\n"


def test_following_a_log_can_be_ended_from_another_thread(engine: Engine, name: str) -> None:
    engine.start(engine.create(name, body("lives")))
    pieces = engine.logs(name, lines=None, follow=True, timestamps=False)
    reading = threading.Thread(target=lambda: list(pieces))
    reading.start()
    pieces.close()
    reading.join(LIMIT_S)
    assert not reading.is_alive()
    assert found(engine, name).state == "running"


def test_the_log_of_a_container_with_a_terminal_has_no_frames(engine: Engine, name: str) -> None:
    run(engine, name, "writes", Tty=True)
    assert _log(engine, name).replace("\r\n", "\n") == "to stdout\nto stderr\n"


def test_a_container_that_never_ran_has_an_empty_log(engine: Engine, name: str) -> None:
    engine.create(name, body("writes"))
    assert _log(engine, name) == ""


def test_there_is_no_log_of_what_is_not_there(engine: Engine, name: str) -> None:
    with pytest.raises(NoSuchContainer):
        engine.logs(name, lines=None, follow=False, timestamps=False)
