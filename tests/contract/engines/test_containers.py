"""What becomes of a container that is created, started, stopped and removed?"""

from __future__ import annotations

import resource
import time

import pytest

from tests.contract.engines.engines import (
    LABEL,
    REAL,
    EngineAtHand,
    await_event,
    body,
    eventually,
    followed,
    found,
    reference,
    run,
)
from tpuagent.containers.creation import render_creation
from tpuagent.containers.engine import Engine
from tpuagent.containers.spec import Spec
from tpuagent.errors import BadCommand, EngineRefused, ImageUnknown, NameTaken, NoSuchContainer


def test_a_created_container_has_its_name_image_and_labels_and_never_ran(engine: Engine, name: str) -> None:
    identity = engine.create(name, body("lives", Labels={"a.b": "c d", "empty": ""}))
    container = found(engine, name)
    image = engine.image(reference("lives"))
    assert image
    assert (container.id, container.name, container.state) == (identity, name, "created")
    assert (container.image, container.image_id) == (reference("lives"), image.id)
    assert {(LABEL, "yes"), ("a.b", "c d"), ("empty", "")} <= set(container.labels)
    assert (container.started_at, container.finished_at, container.pid, container.exit_code) == ("", "", 0, 0)


def test_a_container_is_found_by_its_whole_name_or_id_only(engine: Engine, name: str) -> None:
    identity = engine.create(name, body("lives"))
    assert found(engine, identity).name == name
    assert engine.container(identity[:12]) is None
    assert engine.container(name[:-1]) is None
    assert engine.container(f"{name}-2") is None


def test_containers_are_listed_by_a_label_in_whatever_state(engine: Engine, name: str) -> None:
    engine.create(f"{name}-b", body("lives", Labels={"which": "b"}))
    engine.start(engine.create(f"{name}-a", body("lives", Labels={"which": "a"})))
    run(engine, f"{name}-c", "exit-0", Labels={"which": "", "whichever": "c"})
    assert [(one.name[-1], one.state) for one in engine.containers("which")] == [
        ("a", "running"), ("b", "created"), ("c", "exited")
    ]  # fmt: skip
    assert [one.name[-1] for one in engine.containers("which=b")] == ["b"]
    assert [one.name[-1] for one in engine.containers("whichever")] == ["c"]
    assert engine.containers("whic") == []
    assert engine.containers("which=d") == []


def test_a_name_is_taken_until_the_container_is_removed(engine: Engine, name: str) -> None:
    first = engine.create(name, body("lives"))
    with pytest.raises(NameTaken):
        engine.create(name, body("exit-0"))
    engine.remove(first, force=False)
    assert engine.create(name, body("exit-0")) != first


def test_an_image_that_the_engine_does_not_have_is_refused_at_the_creation(engine: Engine, name: str) -> None:
    with pytest.raises(ImageUnknown):
        engine.create(name, {**body("lives"), "Image": "tpu-agent.test/unheard-of:1"})
    assert engine.container(name) is None


def test_a_started_container_runs_and_starting_it_again_changes_nothing(engine: Engine, name: str) -> None:
    engine.start(engine.create(name, body("lives")))
    first = found(engine, name)
    assert (first.state, first.exit_code, first.oom_killed) == ("running", 0, False)
    assert first.pid > 0
    assert first.started_at.startswith("20")
    engine.start(name)
    assert found(engine, name) == first


def test_a_container_that_ends_has_its_exit_code(engine: Engine, name: str) -> None:
    container = run(engine, name, "exit-7")
    assert (container.state, container.exit_code, container.pid, container.oom_killed) == ("exited", 7, 0, False)
    # Not in this order: to Docker 26 the end of a short run may be a moment before its start.
    assert container.started_at.startswith("20")
    assert container.finished_at.startswith("20")


def test_a_container_that_has_ended_can_be_started_again(engine: Engine, name: str) -> None:
    first = run(engine, name, "exit-7")
    with followed(engine) as events:
        engine.start(name)
        assert await_event(events, "die", name).exit_code == 7
    assert eventually(lambda: found(engine, name).finished_at > first.finished_at)


@pytest.mark.parametrize("tag", ["not-found", "not-executable", "no-such-path", "a-folder"])
def test_a_command_that_cannot_be_run_is_told_apart(engine: Engine, name: str, tag: str) -> None:
    identity = engine.create(name, body(tag))
    with pytest.raises(BadCommand) as raised:
        engine.start(identity)
    assert "its command cannot be run: " in raised.value.why  # which one, crun does not always say
    assert found(engine, name).state in {"created", "exited"}
    assert found(engine, name).pid == 0


def test_what_cannot_be_started_for_another_reason_is_no_bad_command(engine: Engine, name: str) -> None:
    identity = engine.create(name, body("bad-mount"))
    with pytest.raises(EngineRefused) as raised:
        engine.start(identity)
    assert not isinstance(raised.value, BadCommand)


def test_a_container_that_listens_to_the_signal_ends_by_itself(engine: Engine, name: str) -> None:
    engine.start(engine.create(name, body("lives")))
    engine.stop(name, 60)
    assert (found(engine, name).state, found(engine, name).exit_code) == ("exited", 0)


def test_a_stubborn_container_is_killed_when_its_grace_is_over(engine: Engine, name: str) -> None:
    engine.start(engine.create(name, body("stubborn")))
    begun = time.monotonic()
    engine.stop(name, 1)
    assert time.monotonic() - begun >= 0.9
    assert (found(engine, name).state, found(engine, name).exit_code) == ("exited", 137)


def test_to_stop_what_does_not_run_or_is_not_there_does_nothing(engine: Engine, name: str) -> None:
    identity = engine.create(name, body("lives"))
    engine.stop(identity, 1)
    engine.start(identity)
    engine.stop(identity, 60)
    ended = found(engine, name)
    engine.stop(identity, 1)
    assert found(engine, name) == ended
    engine.remove(identity, force=False)
    engine.stop(identity, 1)


def test_what_is_not_there_cannot_be_started_or_resumed(engine: Engine, name: str) -> None:
    assert engine.container(name) is None
    with pytest.raises(NoSuchContainer):
        engine.start(name)
    with pytest.raises(NoSuchContainer):
        engine.unpause(name)


def test_a_running_container_is_removed_only_by_force(engine: Engine, name: str) -> None:
    identity = engine.create(name, body("lives"))
    engine.start(identity)
    with pytest.raises(EngineRefused):
        engine.remove(identity, force=False)
    assert found(engine, name).state == "running"
    engine.remove(identity, force=True)
    assert engine.container(name) is None
    engine.remove(identity, force=True)
    engine.remove(name, force=False)


def test_a_paused_container_cannot_be_started_goes_on_when_asked_and_can_be_stopped(
    at_hand: EngineAtHand, engine: Engine, name: str
) -> None:
    engine.start(engine.create(name, body("lives")))
    running = found(engine, name)
    at_hand.pause(name)
    assert found(engine, name).state == "paused"
    with pytest.raises(EngineRefused):
        engine.start(name)
    engine.unpause(name)
    engine.unpause(name)
    assert found(engine, name) == running
    at_hand.pause(name)
    engine.stop(name, 60)
    assert found(engine, name).state == "exited"


def test_a_container_that_wants_too_much_memory_is_killed_and_an_engine_may_say_so(engine: Engine, name: str) -> None:
    container = run(engine, name, "oom")
    assert (container.state, container.exit_code) == ("exited", 137)
    # Podman 4.3 never notices that it was for memory; Docker 20.10 and 26.1 do, but for one time in a few dozen.
    assert not (container.oom_killed and engine.info().version.startswith("4."))


@pytest.mark.skipif(not REAL, reason="the simulated engine takes any body")
def test_what_the_agent_creates_is_taken_and_starts(engine: Engine, name: str) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (OSError, ValueError):
        pytest.skip("nobody may raise limits on this machine")
    spec = Spec(name, image=reference("lives"), command=tuple(body("lives")["Cmd"]), privileged=True, network="host")
    creation = render_creation(spec, ["/dev/vfio/0"])
    creation["Labels"] = {**creation["Labels"], LABEL: "yes"}
    engine.start(engine.create(name, creation))
    container = found(engine, name)
    assert container.state == "running"
    assert set(creation["Labels"].items()) <= set(container.labels)
    with open(f"/proc/{container.pid}/limits", encoding="ascii") as file:
        memlock = next(line for line in file if line.startswith("Max locked memory"))
    assert memlock.split()[3:5] == ["unlimited", "unlimited"]
