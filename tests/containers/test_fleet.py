"""Is each container kept running, whatever the engine, the registry and the host do? On an engine of our own."""

from __future__ import annotations

import functools
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.fleets import TOKEN, Work, at_work, engine_on, place
from tests.containers.looks import NODES, UNUSABLE, USABLE
from tests.fakes.engine import FakeEngine
from tests.fakes.engine_state import Behaviour
from tests.fakes.engine_words import Podman
from tpuagent.containers.archives import FOLDER
from tpuagent.containers.creation import NODES_LABEL, engine_name, render_creation
from tpuagent.containers.records import Record, lock_file, record_file, render_record
from tpuagent.containers.spec import TELEMETRY, VBAR, Policy
from tpuagent.host import Host
from tpuagent.values import replace

NAME = engine_name("vbar")
# The port of the default is listened on in the host's folder, which without a process of its own is a conflict.
SPEC = replace(VBAR, probe_port=None)


@pytest.fixture
def host() -> Iterator[Host]:
    with place() as one:
        yield one


@pytest.fixture
def engine(host: Host) -> Iterator[FakeEngine]:
    """An engine whose registry has vBar's image for the token."""
    with engine_on(host) as one:
        one.state.publish(SPEC.image, token=TOKEN)
        yield one


def running(engine: FakeEngine, name: str = NAME) -> bool:
    """Whether a container of the name runs."""
    return any(one.name == name and one.state == "running" for one in engine.state.containers.values())


def quiet(engine: FakeEngine) -> None:
    """Return when the events of what was just done have led to no more looks."""
    while engine.until(functools.partial(_more_than, engine, len(engine.seen)), 0.3):
        pass


def _more_than(engine: FakeEngine, seen: int) -> bool:
    return len(engine.seen) > seen


# Beginning --------------------------------------------------------------------------------------------------------


def test_it_is_pulled_with_the_token_only_after_it_was_refused_without(host: Host, engine: FakeEngine) -> None:
    with at_work(host, SPEC) as work:
        seen = work.until("running")
        shown = [pull.headers.get("x-registry-auth") for pull in engine.pulls]
        assert shown[0] is None
        assert TOKEN in engine.decoded(shown[1] or "")
        assert len(shown) == 2
    assert seen.digest == engine.state.registry[SPEC.image].digest
    assert seen.image == SPEC.image
    assert seen.id == engine.state.named(NAME).id
    assert engine.state.named(NAME).labels[NODES_LABEL].split() == sorted(NODES)


def test_a_public_image_is_pulled_without_any_token(host: Host, engine: FakeEngine) -> None:
    engine.state.publish(SPEC.image)
    with at_work(host, SPEC) as work:
        work.until("running")
    assert [pull.headers.get("x-registry-auth") for pull in engine.pulls] == [None]


def test_no_other_registry_than_googles_is_shown_a_token(host: Host, engine: FakeEngine) -> None:
    spec = replace(SPEC, image="gcr.io.example.com/a/b:1")
    engine.state.publish(spec.image, token=TOKEN)
    with at_work(host, spec) as work:
        assert work.until("failed").reason.startswith("cannot pull gcr.io.example.com/a/b:1")
    assert [pull.headers.get("x-registry-auth") for pull in engine.pulls] == [None]


def test_who_was_refused_is_named(host: Host, engine: FakeEngine) -> None:
    engine.state.publish(SPEC.image, token="another")  # noqa: S106  of nobody
    with at_work(host, SPEC) as work:
        assert "robot@example" in work.until("failed").reason


@pytest.mark.usefixtures("engine")
def test_without_an_account_it_is_said_and_tried_again_soon(host: Host) -> None:
    work = Work(host, Policy((SPEC,)))
    work.account.token_text = None
    work.start()
    try:
        assert "there is no token: this VM has none" in work.until("back-off").reason
        work.account.token_text = TOKEN
        work.until("running")
    finally:
        work.stop()


def test_an_image_that_is_there_is_not_pulled(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        work.until("running")
    assert engine.pulls == []


def test_without_a_registry_an_archive_will_do(host: Host, engine: FakeEngine) -> None:
    folder = Path(host.at(FOLDER))
    folder.mkdir(parents=True)
    with tarfile.open(folder / "vbar.tar", "w") as archive:
        listed = json.dumps([{"Config": "c.json", "RepoTags": [SPEC.image], "Layers": []}]).encode()
        for name, data in (("c.json", b"{}"), ("manifest.json", listed)):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    engine.state.registry.clear()
    with at_work(host, SPEC) as work:
        work.until("running")
    assert engine.pulls == []


def test_always_pulls_when_it_is_made_and_takes_what_is_there_when_that_fails(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    engine.state.registry.clear()
    with at_work(host, replace(SPEC, pull="always")) as work:
        work.until("running")
        assert len(engine.pulls) == 1
        engine.state.end(NAME, 1)
        work.until_restarted()
    assert len(engine.pulls) == 1, "a restart is no new container"


def test_never_does_not_pull(host: Host, engine: FakeEngine) -> None:
    with at_work(host, replace(SPEC, pull="never")) as work:
        assert "pull is never" in work.until("failed").reason
    assert engine.pulls == []


@pytest.mark.parametrize(("fault", "state"), [("unknown", "failed"), ("no space", "back-off"), ("fails", "back-off")])
def test_a_pull_that_fails_is_tried_again_soon_or_rarely(
    host: Host, engine: FakeEngine, fault: str, state: str
) -> None:
    engine.state.registry.clear()
    if fault != "unknown":
        engine.state.publish(SPEC.image, fault=fault)
    with at_work(host, SPEC) as work:
        work.until(state)
        assert SPEC.image in work.last().reason
        if state == "back-off":
            engine.state.publish(SPEC.image)
            work.until("running")


def test_it_waits_for_functions_and_for_what_kind_of_host_it_is(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    work = Work(host, Policy((SPEC,)))
    work.fleet.see_devices(UNUSABLE)
    work._run(work.fleet.run)  # noqa: SLF001
    work.fleet.start()
    try:
        assert work.until("waiting").reason == UNUSABLE.reason
        since = work.mark()
        work.fleet.see_devices(USABLE)
        assert "what kind of host" in work.until("waiting", since=since).reason
        assert not engine.state.containers
        work.fleet.see_place(gke=False)
        work.until("running")
    finally:
        work.stop()


def test_on_gke_it_stands_down(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        work.until("running")
        since = work.mark()
        work.fleet.see_place(gke=True)
        work.until("running", since=since)
        engine.state.end(NAME, 0)
        work.until("stood down", since=since)


# Life -------------------------------------------------------------------------------------------------------------


def test_an_end_is_answered_by_a_start_of_the_same_container_at_once(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        first = work.until("running")
        engine.state.end(NAME, 3)
        assert work.until_restarted().id == first.id
        assert len(engine.requests("POST", f"/containers/{first.id}/start")) == 2


def test_a_command_that_is_not_there_is_tried_once_in_a_minute(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    engine.state.behave(SPEC.image, Behaviour(start_error=127))
    with at_work(host, SPEC) as work:
        work.until("failed")
        engine.until(lambda: False, 0.5)
        assert len([one for one in engine.seen if one.path.endswith("/start")]) == 1
        assert work.last().state == "failed"


@pytest.mark.parametrize("told", [True, False])
def test_an_end_for_want_of_memory_is_told_also_by_an_engine_that_has_lost_it(
    host: Host, engine: FakeEngine, *, told: bool
) -> None:
    engine.state.add_image(SPEC.image)
    host.replace("/proc/vmstat", "oom_kill 7\n")
    with at_work(host, SPEC) as work:
        work.until("running")
        for kills in (8, 9):
            since = work.mark()
            host.replace("/proc/vmstat", f"nr_free_pages 4\noom_kill {kills}\n")
            engine.state.end(NAME, 137, oom=told)
            engine.until(lambda: running(engine), 5)
            work.until("running", since=since)
        assert any("OOM" in one.reason for one in work.told)


@pytest.mark.parametrize("state", ["created", "running", "paused", "exited", "dead", "restarting"])
@pytest.mark.parametrize("current", [True, False])
def test_every_leftover_comes_to_run_as_specified(host: Host, engine: FakeEngine, state: str, current: bool) -> None:
    engine.state.add_image(SPEC.image)
    body = render_creation(SPEC if current else replace(SPEC, uid="7"), NODES)
    left = engine.state.add_container(NAME, SPEC.image, state, **body)
    with at_work(host, SPEC) as work:
        kept = current and state != "dead"
        if kept:
            assert work.until("running").id == left.id
        else:  # until it knows of the functions, the agent takes one that runs as it is
            work.until_new(left.id)
    if kept and state == "running":
        assert not [one for one in engine.seen if one.method != "GET"], "adopted without a touch"
    assert len(engine.state.containers) == 1


def test_a_removal_that_is_still_going_on_is_waited_for(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    engine.state.slow_removals = True
    engine.state.add_container(NAME, SPEC.image, "exited", **render_creation(replace(SPEC, uid="7"), NODES))
    with at_work(host, SPEC) as work:
        engine.until(lambda: any(one.method == "DELETE" for one in engine.seen))
        engine.state.finish_removals()
        work.until("running")


def test_a_foreign_container_is_told_and_left_alone(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    foreign = engine.state.add_container(NAME, "busybox:1")
    with at_work(host, SPEC) as work:
        assert "docker rm" in work.until("blocked").reason
        assert engine.state.named(NAME).id == foreign.id
        engine.state.remove(NAME, force=True)
        work.until("running")
    assert engine.state.named(NAME).id != foreign.id


def test_nodes_that_are_made_anew_make_a_new_container_and_those_that_go_do_not(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        first = work.until("running").id
        since = work.mark()
        work.fleet.see_devices(replace(USABLE, nodes=frozenset(sorted(NODES)[:1])))
        assert work.until("running", since=since).id == first
        work.fleet.see_devices(replace(USABLE, nodes=frozenset({"/dev/vfio/11=7.7"})))
        work.until_new(first)


def test_with_the_agent_gone_it_runs_on_and_the_next_one_adopts_it(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        first = work.until("running").id
        assert work.stop() < 2
    assert running(engine)
    asked = len(engine.seen)
    with at_work(host, SPEC) as work:
        assert work.until("running").id == first
    assert all(one.method == "GET" for one in engine.seen[asked:])


def test_stopping_ends_a_pull_at_once(host: Host, engine: FakeEngine) -> None:
    engine.state.publish(SPEC.image, fault="stalls")
    with at_work(host, SPEC) as work:
        assert engine.until(lambda: engine.pulls)
        assert work.stop() < 2


# Configuration and operators --------------------------------------------------------------------------------------


def test_switched_off_it_is_ended_and_removed_and_switched_on_made_anew(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        work.until("running")
        since = work.mark()
        work.fleet.follow(Policy((replace(SPEC, enabled=False),)))
        work.until("off", since=since)
        assert engine.until(lambda: not engine.state.containers)
        since = work.mark()
        work.fleet.follow(Policy((SPEC,)))
        work.until("running", since=since)


def test_where_nothing_is_to_run_no_engine_is_woken(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, replace(SPEC, enabled=False)) as work:
        work.until("off")
        engine.until(lambda: False, 0.5)
        assert engine.seen == []
        work.fleet.follow(Policy((SPEC,)))
        work.until("running")


def test_one_that_the_configuration_names_no_more_is_removed_and_others_are_not_touched(
    host: Host, engine: FakeEngine
) -> None:
    engine.state.add_image(SPEC.image)
    extra = replace(SPEC, name="extra")
    engine.state.add_container("tpu-agent-extra", extra.image, "running", **render_creation(extra, NODES))
    engine.state.add_container("mine", "busybox:1")
    engine.state.add_container("copy", "busybox:1", "running", Labels={"tpu-agent.name": "extra"})
    with at_work(host, SPEC) as work:
        work.until("off", name="extra")
        assert engine.until(lambda: {one.name for one in engine.state.containers.values()} == {"mine", "copy", NAME})
        work.until("running")


def test_another_configuration_replaces_it(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        first = work.until("running").id
        work.fleet.follow(Policy((replace(SPEC, uid="1000"),)))
        work.until_new(first)
    assert "--uid=1000" in engine.state.named(NAME).body["Cmd"]


def test_two_containers_do_not_wait_for_each_other(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    slow = replace(TELEMETRY, enabled=True)
    engine.state.publish(slow.image, fault="stalls")
    with at_work(host, slow, SPEC) as work:
        work.until("running")
        assert work.last("telemetry").state in ("pulling", "starting", "waiting")


def test_what_an_operator_stopped_stays_stopped_until_it_is_asked_for(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        work.until("running")
        since = work.mark()
        host.replace(record_file("vbar"), render_record(Record(stopped=True)))
        engine.state.end(NAME, 0)
        assert "operator" in work.until("stopped", since=since).reason
    with at_work(host, SPEC) as work:
        work.until("stopped")
        host.replace(record_file("vbar"), render_record(Record(stopped=False, asked=1)))
        work.fleet.follow(Policy((SPEC,)))
        work.until("running")


def test_a_request_ends_the_wait_of_one_that_failed(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    engine.state.behave(SPEC.image, Behaviour(start_error=127))
    with at_work(host, SPEC) as work:
        work.until("failed")
        engine.state.behave(SPEC.image, Behaviour())
        host.replace(record_file("vbar"), render_record(Record(asked=1)))
        work.fleet.follow(Policy((SPEC,)))
        work.until("running")


def test_while_a_command_is_at_work_on_it_the_agent_keeps_off(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        first = work.until("running")
        with host.lock(lock_file("vbar"), 5):
            since = work.mark()
            engine.state.end(NAME, 0)
            engine.until(lambda: False, 0.3)
            assert not running(engine)
            engine.state.start(NAME)
        seen = work.until("running", since=since)
        assert (seen.id, seen.restarts) == (first.id, 0)


# The engine away --------------------------------------------------------------------------------------------------


def test_without_an_engine_it_is_said_and_when_one_comes_it_starts(host: Host) -> None:
    with at_work(host, SPEC) as work:
        assert "apt install docker.io" in work.until("no engine").reason
        with engine_on(host) as engine:
            engine.state.add_image(SPEC.image)
            work.until("running")


@pytest.mark.parametrize("how", ["gone", "refusing"])
@pytest.mark.parametrize("containers", ["killed", "kept"])
def test_when_the_engine_goes_and_comes_back_it_runs_again(
    host: Host, engine: FakeEngine, how: str, containers: str
) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        first = work.until("running")
        since = work.mark()
        engine.stop(how, containers=containers)  # type: ignore[arg-type]
        work.until("no engine", since=since)
        since = work.mark()
        engine.serve()
        again = work.until("running", since=since)
        assert again.id == first.id
        assert again.restarts == 0, "what the engine took with it says nothing of the container"


@pytest.mark.parametrize(("fault", "state"), [("500", "back-off"), ("html", "no engine")])
def test_an_engine_that_answers_nonsense_is_borne_until_it_recovers(
    host: Host, engine: FakeEngine, fault: str, state: str
) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        work.until("running")
        since = work.mark()
        engine.fail_always(fault)
        engine.state.end(NAME, 1)
        work.until(state, since=since)
        engine.serve()
        assert engine.until(lambda: running(engine))


def test_an_engine_that_hangs_is_said_to_be_away(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(SPEC.image)
    with at_work(host, SPEC) as work:
        work.until("running")
        since = work.mark()
        engine.hang()
        work.fleet.follow(Policy((SPEC,)))
        work.until("no engine", since=since)
        engine.serve()
        work.until("running", since=since)


def test_docker_that_was_stopped_on_purpose_is_not_started_by_a_connection(host: Host, engine: FakeEngine) -> None:
    """systemd holds the socket; Docker stops to listen, tells that the container has ended, ends itself."""
    engine.state.add_image(SPEC.image)
    os.makedirs(host.at("/proc/41/fd"))
    os.symlink("socket:[77]", host.at("/proc/41/fd/3"))
    host.replace("/proc/net/unix", "Num RefCount\n0000: 00000002 00000000 00010000 0001 01 77 /run/docker.sock\n")
    host.replace("/run/docker.pid", "41")
    with at_work(host, SPEC) as work:
        work.until("running")
        quiet(engine)
        os.unlink(host.at("/proc/41/fd/3"))
        since, asked = work.mark(), len(engine.seen)
        engine.state.end(NAME, 143)
        work.until_reason("Docker is stopping", since=since)
        engine.restart()
        host.remove("/run/docker.pid")
        work.until_reason("systemctl start docker", since=since)
        engine.until(lambda: False, 1.0)
        assert engine.seen[asked:] == []
        os.makedirs(host.at("/proc/42/fd"))
        os.symlink("socket:[77]", host.at("/proc/42/fd/3"))
        since = work.mark()
        host.replace("/run/docker.pid", "42")
        assert work.until("running", since=since).restarts == 0


def test_podman_will_do(host: Host) -> None:
    with engine_on(host, Podman(), "/run/podman/podman.sock") as engine:
        engine.state.publish(SPEC.image, token=TOKEN)
        with at_work(host, SPEC) as work:
            first = work.until("running")
            engine.state.end(NAME, 3)
            assert work.until_restarted().id == first.id


def test_the_port_in_other_hands_keeps_it_from_starting(host: Host, engine: FakeEngine) -> None:
    engine.state.add_image(VBAR.image)
    with at_work(host, VBAR) as work:
        assert "port 8353 is taken by" in work.until("stood down").reason
        assert not engine.state.containers
        os.unlink(host.at("/proc/net/tcp"))
