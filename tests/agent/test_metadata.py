"""Does what the metadata server says reach the files and the status, and does nothing else ever wait for it?"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.agent.conftest import StartDaemon
from tests.agent.daemon import Daemon
from tests.fakes.machine import Machine
from tests.fakes.metadata_server import FakeMetadataServer
from tpuagent import cli, configfiles, status

KEY = "instance/attributes/tpu-env"
PATH = "/home/tpu-runtime/tpu-env"
TPU_ENV = "TPU_ACCELERATOR_TYPE: 'v6e-8'\nTPU_WORKER_ID: '0'\n"
FILE = 'TPU_ACCELERATOR_TYPE="v6e-8"\nTPU_WORKER_ID="0"\n'
DEVICES = "1 of 1 v6e functions ready"
GOOD = f"{DEVICES}; tpu-env, v6e-8, worker 0"
AT_ONCE_S = 8.0  # on a busy machine, and far from the 30 s that READY may wait for the server


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMetadataServer]:
    """The server that daemons and commands are sent to; it has a tpu-env."""
    with FakeMetadataServer({"tpu-env": TPU_ENV}) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        yield server


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A place where nobody listens yet, and nobody else can: what holds it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{held.getsockname()[1]}")
        yield held


@pytest.fixture
def tpu(machine: Machine) -> str:
    """The address of a function that the machine has."""
    return machine.add_function("v6e")


def settled(server: FakeMetadataServer, daemon: Daemon) -> None:
    """Return when the daemon is ready with a tpu-env and the server holds its next request."""
    assert daemon.wait_ready() == GOOD
    assert server.until_asked(2)


def imported(daemon: Daemon) -> set[str]:
    """The modules that `-X importtime` has named so far."""
    return {line.split()[-1] for line in daemon.log if line.startswith("import time:")}


def document(machine: Machine) -> status.Document:
    """What `tpuagent status --json` prints."""
    return status.read_status(machine.host) or {}


# At the start -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tpu")
def test_ready_comes_when_tpu_env_is_written_and_the_status_names_what_it_says(
    machine: Machine, server: FakeMetadataServer, start: StartDaemon
) -> None:
    with server.changed:  # no request is answered meanwhile
        daemon = start(machine)
        daemon.wait_status(DEVICES)
        daemon.wait_log("function_ready")
        assert "READY=1" not in [one.text for one in daemon.messages]
        assert not machine.tree.exists(PATH)
    assert daemon.wait_ready() == GOOD
    assert machine.tree.text(PATH) == FILE.rstrip()
    assert document(machine)["tpu_env"] == {
        "state": "written", "path": PATH, "accelerator_type": "v6e-8", "worker_id": "0", "reason": "",
    }  # fmt: skip
    daemon.wait_log("tpu_env_written", f"path={PATH}", "accelerator_type=v6e-8", "worker_id=0")


def test_the_functions_are_bound_before_the_server_is_asked_and_its_client_imported(
    machine: Machine, tpu: str, server: FakeMetadataServer, start: StartDaemon
) -> None:
    gate = machine.stop_at("*/vfio-pci/bind")
    daemon = start(machine, program=("-X", "importtime", "-m", "tests.fakes"))
    gate.wait_reached()
    daemon.signal(signal.SIGHUP)
    daemon.wait_log("configuration_loaded")  # so that all that it has said until now is read
    assert "structlog" in imported(daemon)
    assert not imported(daemon) & {"requests", "urllib3"}
    assert server.seen == []
    gate.open()
    assert daemon.wait_ready() == GOOD
    assert "requests" in imported(daemon)
    assert machine.driver(tpu) == "vfio-pci"


@pytest.mark.usefixtures("tpu")
def test_without_a_server_it_is_ready_in_bounded_time_and_degraded_until_the_server_comes(
    machine: Machine, no_server: socket.socket, start: StartDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.tree.put(configfiles.CONFIG_FILE, "tpu_env:\n  ready_wait_s: 1\n")
    began = time.monotonic()
    daemon = start(machine)
    assert daemon.wait_ready().startswith(f"{DEVICES}; no tpu-env: ")
    assert 1 <= daemon.wait_message("READY=1").at_s - began < AT_ONCE_S
    host, port = no_server.getsockname()
    why = f"no tpu-env: cannot reach the metadata server: {host}:{port}: connection refused"
    assert daemon.wait_status(why) == f"{DEVICES}; {why}"  # before READY, but on a busy machine
    assert cli.main(["status"], host=machine.host) == 1
    assert capsys.readouterr().out.startswith(f"degraded: {DEVICES}; {why}\n")
    no_server.close()
    with FakeMetadataServer({"tpu-env": TPU_ENV}, port=port):
        daemon.wait_status(GOOD)
        daemon.wait_log("metadata_server_found")
        assert cli.main(["status"], host=machine.host) == 0
        assert f"\ntpu-env written, {PATH}\n" in capsys.readouterr().out
    assert len([line for line in daemon.log if "metadata_server_lost" in line]) == 1


@pytest.mark.usefixtures("tpu")
def test_a_server_that_is_silent_makes_it_degraded_as_well(
    machine: Machine, server: FakeMetadataServer, start: StartDaemon
) -> None:
    machine.tree.put(configfiles.CONFIG_FILE, "tpu_env:\n  ready_wait_s: 1\n")
    server.fail("silence")
    daemon = start(machine)
    assert daemon.wait_ready().startswith(f"{DEVICES}; no tpu-env: ")
    assert document(machine)["state"] == "degraded"


@pytest.mark.usefixtures("tpu")
def test_without_the_attribute_it_is_ready_at_once_and_says_so(
    machine: Machine, server: FakeMetadataServer, start: StartDaemon
) -> None:
    server.delete(KEY)
    began = time.monotonic()
    daemon = start(machine)
    assert daemon.wait_ready() == f"{DEVICES}; no tpu-env: the attribute tpu-env is not defined"
    assert time.monotonic() - began < AT_ONCE_S
    daemon.wait_log("tpu_env_absent", "not defined")
    server.put(KEY, TPU_ENV)
    daemon.signal(signal.SIGHUP)
    daemon.wait_status(GOOD)
    daemon.wait_log("tpu_env_written")  # the status may come first
    assert len([line for line in daemon.log if "tpu_env_" in line]) == 2, "once, and not at each look"


def test_a_host_without_a_tpu_does_not_wait_for_the_server_and_is_not_degraded(
    machine: Machine, no_server: socket.socket, start: StartDaemon
) -> None:
    assert no_server
    began = time.monotonic()
    daemon = start(machine)
    assert daemon.wait_ready() == "no TPU functions on this host"
    assert time.monotonic() - began < AT_ONCE_S
    daemon.wait_log("metadata_server_lost")
    assert document(machine)["state"] == "ready"


@pytest.mark.usefixtures("tpu")
def test_where_the_firmware_names_no_google_host_nobody_misses_tpu_env(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, start: StartDaemon
) -> None:
    monkeypatch.delenv("GCE_METADATA_HOST", raising=False)
    machine.tree.put("/sys/class/dmi/id/sys_vendor", "QEMU\n")
    began = time.monotonic()
    daemon = start(machine)
    assert daemon.wait_ready() == DEVICES
    assert time.monotonic() - began < AT_ONCE_S
    daemon.wait_log("tpu_env_not_google", "GCE_METADATA_HOST")
    assert (document(machine)["state"], document(machine)["tpu_env"]["state"]) == ("ready", "not-google")


@pytest.mark.usefixtures("tpu", "server")
def test_a_file_that_cannot_be_written_is_said_and_does_not_keep_it_from_being_ready(
    machine: Machine, start: StartDaemon
) -> None:
    machine.tree.folder(PATH)
    assert start(machine).wait_ready() == f"{DEVICES}; cannot write {PATH}: is a directory"
    assert document(machine)["tpu_env"]["state"] == "failed"


# While it runs ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tpu")
def test_a_change_is_visible_in_file_and_status_within_a_second(
    machine: Machine, server: FakeMetadataServer, start: StartDaemon
) -> None:
    daemon = start(machine)
    settled(server, daemon)
    for asked, worker in enumerate("37", start=2):
        assert server.until_asked(asked)
        began = time.monotonic()
        server.put(KEY, TPU_ENV.replace("'0'", f"'{worker}'"))
        daemon.wait_status(f"worker {worker}")
        assert time.monotonic() - began < 1
        assert machine.tree.text(PATH) == FILE.replace('"0"', f'"{worker}"').rstrip()
        assert document(machine)["tpu_env"]["worker_id"] == worker


@pytest.mark.usefixtures("tpu")
def test_a_deleted_attribute_is_said_and_the_file_stays(
    machine: Machine, server: FakeMetadataServer, start: StartDaemon
) -> None:
    daemon = start(machine)
    settled(server, daemon)
    server.delete(KEY)
    why = f"the attribute tpu-env is no longer defined; {PATH} stays as it was"
    assert daemon.wait_status("no longer") == f"{DEVICES}; old tpu-env: {why}"
    assert machine.tree.text(PATH) == FILE.rstrip()
    daemon.wait_log("tpu_env_deleted")


@pytest.mark.usefixtures("tpu")
def test_told_to_read_its_configuration_it_writes_to_the_new_path_under_both_names(
    machine: Machine, server: FakeMetadataServer, start: StartDaemon
) -> None:
    daemon = start(machine)
    settled(server, daemon)
    machine.tree.put(configfiles.CONFIG_FILE, "tpu_env:\n  path: /srv/tpu/env\n  aliases: true\n")
    daemon.signal(signal.SIGHUP)
    daemon.wait_log("tpu_env_written", "path=/srv/tpu/env")
    assert machine.tree.text("/srv/tpu/env") == FILE + 'ACCELERATOR_TYPE="v6e-8"\nWORKER_ID="0"'
    machine.tree.put(configfiles.CONFIG_FILE, "environment:\n  MORE: 'a b'\n")
    daemon.signal(signal.SIGHUP)
    daemon.wait_log("environment_changed", "MORE")
    assert 'MORE="a b"' in (machine.tree.text("/etc/environment") or "").splitlines()


# /etc/environment -------------------------------------------------------------------------------------------------


def test_the_lines_of_etc_environment_are_written_without_any_server(machine: Machine, start: StartDaemon) -> None:
    machine.tree.put("/usr/bin/python3", "", 0o755)
    machine.tree.put("/etc/environment", "LANG=C.UTF-8\n", 0o640)
    daemon = start(machine)
    daemon.wait_log("environment_changed", "GCS_WRITE_REQUEST_TIMEOUT_SECS=600")
    daemon.wait_log("tpu_env_not_google")
    lines = (machine.tree.text("/etc/environment") or "").splitlines()
    assert lines[:2] == ["LANG=C.UTF-8", "CLOUDSDK_PYTHON=/usr/bin/python3"]
    assert len(lines) == 7


@pytest.mark.usefixtures("tpu", "server")
@pytest.mark.parametrize(("trouble", "why"), [("link", "too many levels of symbolic links"), ("folder", "a directory")])
def test_an_etc_environment_that_cannot_be_edited_is_said_until_it_can(
    machine: Machine, start: StartDaemon, trouble: str, why: str
) -> None:
    if trouble == "link":
        machine.tree.link("/etc/environment", "/etc/environment")
    else:
        machine.tree.folder("/etc/environment")
    daemon = start(machine)
    assert daemon.wait_ready().startswith(f"{DEVICES}; tpu-env, v6e-8, worker 0; cannot edit /etc/environment: ")
    assert why in daemon.wait_log("environment_failed")
    assert document(machine)["state"] == "degraded"
    machine.tree.remove("/etc/environment")
    daemon.signal(signal.SIGHUP)
    since = len(daemon.messages)
    daemon.wait_status(GOOD, since)
    assert "GCS_" in (machine.tree.text("/etc/environment") or "")


# Stopping ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("tpu")
@pytest.mark.parametrize("when", ["before it is ready", "while the server holds its request"])
def test_it_ends_at_once_whatever_it_has_asked_the_server(
    machine: Machine, server: FakeMetadataServer, start: StartDaemon, when: str
) -> None:
    if when == "before it is ready":
        server.fail("silence")
        daemon = start(machine)
        assert server.until_asked(1)
    else:
        daemon = start(machine)
        settled(server, daemon)
    began = time.monotonic()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait_end() == 0
    assert time.monotonic() - began < 2
    assert daemon.messages[-1].text == "STOPPING=1"


@pytest.mark.usefixtures("tpu")
def test_the_document_of_a_running_agent_is_plain_data(
    machine: Machine, server: FakeMetadataServer, start: StartDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    settled(server, start(machine))
    assert cli.main(["status", "--json"], host=machine.host) == 0
    assert json.loads(capsys.readouterr().out)["tpu_env"]["accelerator_type"] == "v6e-8"
