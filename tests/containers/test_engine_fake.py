"""Does the simulated engine do what tests of others rely on?"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.engine import FakeEngine
from tests.fakes.engine_state import Behaviour
from tpuagent.containers.engine import Engine

IMAGE = "gcr.io/x/y:1"


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine(str(tmp_path / "engine.sock")) as running:
        running.state.add_image(IMAGE)
        yield running


def test_a_stop_kills_the_containers_unless_they_are_kept(fake: FakeEngine) -> None:
    fake.state.add_container("x", IMAGE)
    fake.restart(containers="kept")
    assert fake.state.named("x").state == "running"
    fake.restart()
    assert (fake.state.named("x").state, fake.state.named("x").exit_code) == ("exited", 137)


def test_requests_are_noted_with_the_time_at_which_they_came(fake: FakeEngine) -> None:
    engine = Engine(fake.path)
    identity = engine.create("x", {"Image": IMAGE})
    before = time.monotonic()
    engine.start(identity)
    (start,) = fake.requests("POST", f"/containers/{identity}/start")
    assert before <= start.at <= time.monotonic()
    assert fake.pulls == []


def test_a_test_can_decide_what_an_image_does_and_when_it_ends(fake: FakeEngine) -> None:
    fake.state.behave(IMAGE, Behaviour(output=(("stdout", "hello\n"),)))
    engine = Engine(fake.path)
    engine.start(engine.create("x", {"Image": IMAGE}))
    with engine.events() as events:
        fake.state.end("x", 3)
        event = next(events)
        assert (event.action, event.exit_code) == ("die", 3)
        engine.start("x")
        fake.state.end("x", oom=True)
        assert [next(events).action for _ in range(3)] == ["start", "oom", "die"]
    found = engine.container("x")
    assert found
    assert (found.exit_code, found.oom_killed) == (137, True)


def test_a_newer_image_of_the_same_name_has_another_id(fake: FakeEngine) -> None:
    engine = Engine(fake.path)
    images = []
    for _ in range(2):
        fake.state.publish(IMAGE)
        engine.pull(IMAGE, None, lambda _: None)
        images.append(engine.image(IMAGE))
    assert images[0] != images[1]


def test_it_runs_alone_and_obeys_its_standard_input(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.sock")
    argv = [sys.executable, "-m", "tests.fakes.engine", path, "--image", IMAGE]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin
        assert child.stdout
        assert child.stdout.readline() == f"container engine at {path}\n"
        engine = Engine(path)
        engine.start(engine.create("x", {"Image": IMAGE}))
        child.stdin.write("end x 3\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done: end x 3\n"
        found = engine.container("x")
        assert found
        assert (found.state, found.exit_code) == ("exited", 3)
        child.stdin.close()
        assert child.wait(10) == 0
