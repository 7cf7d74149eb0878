"""Does the whole agent keep its containers running, say so, and leave them running when it goes?"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.agent.conftest import StartDaemon
from tests.agent.daemon import Daemon
from tests.fakes.engine import FakeEngine
from tests.fakes.machine import Machine
from tests.fakes.metadata_server import FakeMetadataServer
from tpuagent import cli, status
from tpuagent.containers.spec import VBAR
from tpuagent.containers.supervisor import Supervisor

CONFIG = "/etc/tpu-agent/config.yaml"
# The simulated machine has no list of sockets in which a port could be seen.
PLAIN = "containers: {vbar: {probe: off}}\n"
NAME = "tpu-agent-vbar"
GOOD = "1 of 1 v6e functions ready; vbar running"


@pytest.fixture
def engine(machine: Machine) -> Iterator[FakeEngine]:
    """Docker on a machine with one function, and vBar's image in it."""
    machine.add_function("v6e")
    machine.tree.put(CONFIG, PLAIN)
    with FakeEngine(machine.host.at("/run/docker.sock")) as one:
        one.state.add_image(VBAR.image)
        yield one


@pytest.fixture
def daemon(machine: Machine, engine: FakeEngine, start: StartDaemon) -> Daemon:
    """An agent whose vBar runs."""
    assert engine.serving
    started = start(machine, containers=True)
    started.wait_status(GOOD)
    return started


def test_ready_waits_for_no_container(machine: Machine, engine: FakeEngine, start: StartDaemon) -> None:
    engine.hang()
    daemon = start(machine, containers=True)
    assert daemon.wait_ready() == "1 of 1 v6e functions ready; vbar starting"
    engine.serve()
    daemon.wait_status(GOOD)


def test_without_a_tpu_no_container_is_missed(machine: Machine, start: StartDaemon) -> None:
    daemon = start(machine, containers=True)
    assert daemon.wait_ready() == "no TPU functions on this host"
    assert status.read_status(machine.host)["state"] == "ready"  # type: ignore[index]
    assert cli.main(["status"], host=machine.host) == 0


def test_without_an_engine_the_host_is_degraded_and_the_devices_are_not(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v6e")
    daemon = start(machine, containers=True)
    daemon.wait_ready()
    told = daemon.wait_status("functions ready; vbar no engine")
    assert told.startswith("1 of 1 v6e functions ready; vbar no engine: there is neither /run/docker.sock nor")
    assert cli.main(["status"], host=machine.host) == 1


def test_the_document_tells_all_of_a_container(machine: Machine, engine: FakeEngine, daemon: Daemon) -> None:
    assert daemon.process.poll() is None
    document = status.read_status(machine.host)
    assert document
    vbar, telemetry = document["containers"]
    assert vbar["id"] == engine.state.named(NAME).id
    assert vbar["started_at"] == engine.state.named(NAME).started_at
    assert (vbar["name"], vbar["state"], vbar["restarts"], vbar["reason"]) == ("vbar", "running", 0, "")
    assert vbar["image"] == VBAR.image
    assert vbar["digest"].startswith("sha256:")
    assert (telemetry["name"], telemetry["state"], telemetry["id"]) == ("telemetry", "off", None)


def test_its_end_and_its_return_are_in_the_status(engine: FakeEngine, daemon: Daemon) -> None:
    since = len(daemon.messages)
    engine.state.end(NAME, 3)
    daemon.wait_log("container_ended", "code=3")
    daemon.wait_status(GOOD, since)


def test_stopping_and_killing_the_agent_leaves_it_running(
    machine: Machine, engine: FakeEngine, daemon: Daemon, start: StartDaemon
) -> None:
    first = engine.state.named(NAME).id
    daemon.stop()
    assert engine.state.named(NAME).state == "running"
    second = start(machine, containers=True)
    second.wait_status(GOOD)
    second.signal(signal.SIGKILL)
    second.wait_end()
    third = start(machine, containers=True)
    third.wait_status(GOOD)
    assert engine.state.named(NAME).id == first
    assert len(engine.requests("POST", "/containers/create")) == 1


def test_a_rebind_makes_it_anew(machine: Machine, engine: FakeEngine, daemon: Daemon) -> None:
    first = engine.state.named(NAME).id
    machine.rebind("0000:00:04.0")
    daemon.wait_status("vbar starting: it is being replaced")
    daemon.wait_status(GOOD, since=len(daemon.messages))
    assert engine.state.named(NAME).id != first


def test_a_function_that_is_lost_keeps_it_running_and_from_starting(
    machine: Machine, engine: FakeEngine, daemon: Daemon
) -> None:
    second = machine.plug("v6e")
    daemon.wait_status("it is being replaced")  # it does not see the new node
    daemon.wait_status("2 of 2 v6e functions ready; vbar running", since=len(daemon.messages))
    assert cli.main(["unbind", second], host=machine.host) == 0
    daemon.wait_status("released")
    engine.state.end(NAME, 1)
    daemon.wait_log("container_ended")
    assert engine.until(lambda: engine.state.named(NAME).state == "running"), "a released function is nobody's"


def test_a_reload_changes_it(machine: Machine, engine: FakeEngine, daemon: Daemon) -> None:
    machine.tree.put(CONFIG, "containers: {vbar: {probe: off, uid: 7}}\n")
    since = len(daemon.messages)
    daemon.signal(signal.SIGHUP)
    daemon.wait_status("it is being replaced", since)
    daemon.wait_status(GOOD, since=len(daemon.messages))
    assert "--uid=7" in engine.state.named(NAME).body["Cmd"]
    machine.tree.put(CONFIG, "containers: {vbar: {enabled: false}, extra: {image: 'busybox:1'}}\n")
    engine.state.add_image("busybox:1")
    daemon.signal(signal.SIGHUP)
    daemon.wait_status("1 of 1 v6e functions ready; extra running", since)


def test_it_stops_in_time_in_the_middle_of_a_pull(machine: Machine, engine: FakeEngine, start: StartDaemon) -> None:
    engine.state.images.clear()
    engine.state.publish(VBAR.image, fault="stalls")
    daemon = start(machine, containers=True)
    daemon.wait_status("vbar pulling")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait_end(5) == 0


def test_the_engine_is_not_asked_and_its_client_not_imported_before_the_first_pass(
    machine: Machine, engine: FakeEngine, start: StartDaemon
) -> None:
    gate = machine.stop_at("*/vfio-pci/bind")
    daemon = start(machine, program=("-X", "importtime", "-m", "tests.fakes"), containers=True)
    gate.wait_reached()
    daemon.wait_log("tpuagent.devices.watch")
    assert engine.seen == []
    assert not any(line.split()[-1] in (Supervisor.__module__, "http.client") for line in daemon.log if line)
    gate.open()
    daemon.wait_status(GOOD)


def test_a_node_of_kubernetes_engine_never_sees_it(
    machine: Machine, engine: FakeEngine, start: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeMetadataServer({"tpu-env": "TPU_WORKER_ID: '0'\n", "kube-env": "x"}) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        daemon = start(machine, containers=True)
        daemon.wait_ready()
        assert "Kubernetes" in daemon.wait_status("vbar stood down")
        daemon.stop()
    assert not engine.requests("POST", "/containers")


def test_a_metadata_server_that_does_not_answer_is_not_waited_for_for_ever(
    machine: Machine, engine: FakeEngine, start: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.serving
    machine.tree.put("/etc/tpu-agent/config.d/50.yaml", "tpu_env: {ready_wait_s: 0}\n")
    with FakeMetadataServer() as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
    daemon = start(machine, containers=True)
    daemon.wait_status("vbar running")


# Commands ---------------------------------------------------------------------------------------------------------


def run(machine: Machine, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The command `containers`: its exit code, and what it printed."""
    capsys.readouterr()
    code = cli.main(["containers", *arguments], host=machine.host)
    return code, *capsys.readouterr()


def test_the_list_is_the_agents_and_without_one_the_engines(
    machine: Machine, engine: FakeEngine, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(machine, capsys)
    assert (code, err) == (0, "")
    assert out.splitlines()[1].split()[:3] == ["vbar", "running", engine.state.named(NAME).id[:12]]
    daemon.stop()
    code, out, err = run(machine, capsys)
    assert (code, err) == (0, "no agent runs; this is what the engine says\n")
    assert out.splitlines()[1].split()[:2] == ["vbar", "running"]
    engine.stop()
    code, out, err = run(machine, capsys)
    assert code == 23
    assert "/run/docker.sock" in err or "engine" in err


def test_stop_lasts_and_restart_ends_it(engine: FakeEngine, daemon: Daemon) -> None:
    said = "vbar is stopped; start it with: tpuagent containers restart vbar\n"
    assert daemon.beside("containers", "stop", "vbar") == (0, said, "")
    daemon.wait_status("vbar stopped: by an operator")
    assert engine.state.named(NAME).state == "exited"
    assert "already stopped" in daemon.beside("containers", "stop", "vbar")[1]
    runs = f"vbar runs, container {engine.state.named(NAME).id[:12]}\n"
    assert daemon.beside("containers", "restart", "vbar") == (0, runs, "")
    before = engine.state.named(NAME).started_at
    assert daemon.beside("containers", "restart", "vbar") == (0, runs, "")
    assert engine.state.named(NAME).started_at != before


def test_restart_tells_what_is_in_the_way(machine: Machine, daemon: Daemon) -> None:
    machine.tree.put(CONFIG, "containers: {vbar: {probe: off, image: 'a/absent:1', pull: never}}\n")
    code, _, err = daemon.beside("containers", "restart", "vbar")
    assert code == 17
    assert "it is failed" in err
    assert "pull is never" in err


def test_without_an_agent_restart_starts_what_is_there(
    machine: Machine, engine: FakeEngine, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    daemon.stop()
    assert run(machine, capsys, "stop", "vbar")[0] == 0
    code, out, _ = run(machine, capsys, "restart", "vbar")
    assert code == 0
    assert "systemctl start tpu-agent" in out
    assert engine.state.named(NAME).state == "running"
    code, out, _ = run(machine, capsys, "remove")
    assert (code, out) == (0, "removed vbar\n")
    assert not engine.state.containers
    code, _, err = run(machine, capsys, "restart", "vbar")
    assert code == 25
    assert "systemctl start tpu-agent" in err


def test_remove_takes_only_the_agents_own(
    machine: Machine, engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    engine.state.add_container("mine", "busybox:1")
    engine.state.add_container(NAME, "busybox:1")
    assert run(machine, capsys, "remove")[:2] == (0, "there is none of the agent's containers\n")
    assert len(engine.state.containers) == 2
    for action in ("stop", "restart"):
        code, _, err = run(machine, capsys, action, "vbar")
        assert code == 24
        assert "is not the agent's" in err


def test_while_the_agent_runs_nothing_is_removed_behind_its_back(
    machine: Machine, daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert daemon.process.poll() is None
    code, _, err = run(machine, capsys, "remove")
    assert code == 2
    assert "systemctl stop tpu-agent" in err


def test_logs_go_where_they_were_written_to(
    machine: Machine, engine: FakeEngine, daemon: Daemon, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert daemon.process.poll() is None
    engine.state.write(NAME, "stdout", "one\n")
    engine.state.write(NAME, "stderr", "two\n")
    assert cli.main(["containers", "logs", "vbar"], host=machine.host) == 0
    assert capfdbinary.readouterr() == (b"one\n", b"two\n")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["stop"], 2, "name it"),
        (["stop", "vbat"], 2, "there are vbar, telemetry"),
        (["logs", "telemetry"], 25, "has not been made yet"),
        (["list", "vbar"], 2, "leave the name away"),
        (["remove", "extra"], 25, "the agent has made none"),
    ],
)
def test_what_cannot_be_done_is_said(
    machine: Machine,
    engine: FakeEngine,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    assert engine.serving
    got, _, err = run(machine, capsys, *arguments)
    assert got == code
    assert words in err
