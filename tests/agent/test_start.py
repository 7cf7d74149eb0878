"""When is the daemon ready, and what ends it before it is?"""

from __future__ import annotations

import json
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from tests.agent.conftest import StartDaemon
from tests.fakes.machine import Machine, ModuleState
from tpuagent import configfiles, status
from tpuagent.devices.reconcile import LOCK
from tpuagent.devices.work import RECORDS
from tpuagent.errors import InUse


def test_ready_comes_after_the_first_pass(machine: Machine, start: StartDaemon) -> None:
    addresses = [machine.add_function("v5p") for _ in range(8)]
    gate = machine.stop_at("*/vfio-pci/bind", text=addresses[-1])
    daemon = start(machine)
    gate.wait_reached()
    daemon.wait_status("looking for TPU functions")
    assert "READY=1" not in [one.text for one in daemon.messages]
    gate.open()
    assert daemon.wait_ready() == "8 of 8 v5p functions ready"
    assert {machine.driver(address) for address in addresses} == {"vfio-pci"}
    assert {machine.mode(machine.node(address)) for address in addresses} == {0o666}


def test_a_host_without_a_tpu_is_ready_at_once(machine: Machine, start: StartDaemon) -> None:
    machine.add_other("network", driver="gve")
    assert start(machine).wait_ready() == "no TPU functions on this host"


def test_a_host_with_accel_nodes_alone_is_ready_at_once(machine: Machine, start: StartDaemon) -> None:
    machine.add_driver("gasket", "v4", makes_accel_nodes=True)
    machine.add_function("v4", driver="gasket")
    assert start(machine).wait_ready() == "no TPU function to bind, 1 accel nodes"


def test_functions_that_cannot_be_bound_do_not_keep_it_from_being_ready(tmp_path: Path, start: StartDaemon) -> None:
    machine = Machine.create(str(tmp_path / "machine"), iommu=False)
    for _ in range(2):
        machine.add_function("v6e")
    summary = start(machine).wait_ready()
    assert summary.startswith("0 of 2 v6e functions ready; 2 blocked: no IOMMU group; ")


@pytest.mark.parametrize("modules", ["available", "builtin", "absent"])
def test_modules_are_loaded_if_there_are_any(tmp_path: Path, start: StartDaemon, modules: ModuleState) -> None:
    machine = Machine.create(str(tmp_path / "machine"), vfio_modules=modules)
    address = machine.add_function("v6e", driver="gasket")
    summary = start(machine).wait_ready()
    assert summary.startswith(f"{int(modules != 'absent')} of 1 v6e functions ready")
    if modules == "absent":
        assert "vfio" in summary
        assert machine.driver(address) == "gasket"


def test_ready_is_told_once_and_the_status_only_when_it_changes(machine: Machine, start: StartDaemon) -> None:
    address = machine.add_function("v5p")
    daemon = start(machine)
    daemon.wait_ready()
    seen = len(daemon.log)
    for _ in range(3):
        with machine.host.lock(LOCK, 10):
            machine.rebind(address)
        daemon.wait_log("function_ready", address, since=seen)
        seen = len(daemon.log)
    machine.unplug(address)
    daemon.wait_status("no TPU functions")
    texts = [one.text for one in daemon.messages]
    assert texts.count("READY=1") == 1
    statuses = [text for text in texts if text.startswith("STATUS=")]
    assert all(one != other for one, other in pairwise(statuses))


def test_what_it_publishes_is_there_when_it_says_that_it_is_ready(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v5p")
    daemon = start(machine)
    daemon.wait_ready()
    document = status.read_status(machine.host)
    assert document
    assert document["state"] == "ready"
    assert document["agent"]["pid"] == daemon.process.pid
    assert [one["state"] for one in document["devices"]] == ["ready"]
    daemon.stop()
    assert status.read_status(machine.host) is None
    assert not machine.tree.exists(status.STATUS_FILE)


def test_a_bad_configuration_ends_it_with_its_own_code_and_one_line(machine: Machine, start: StartDaemon) -> None:
    address = machine.add_function("v5p")
    machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  mode: 666\n")
    daemon = start(machine)
    assert daemon.wait_end() == 78
    assert len(daemon.log) == 1
    assert daemon.log[0].startswith("tpuagent: cannot read /etc/tpu-agent/config.yaml: line 2: devices.mode: ")
    assert daemon.messages == []
    assert machine.driver(address) is None
    assert machine.tree.names("/run") == []


def test_a_named_configuration_is_the_one_that_counts(machine: Machine, start: StartDaemon) -> None:
    address = machine.add_function("v5p")
    machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  mode: 666\n")
    machine.tree.put("/other.yaml", "devices:\n  mode: 0660\n  group: tpu\n")
    start(machine, "--config", "/other.yaml").wait_ready()
    found = machine.host.stat(machine.node(address))
    assert found
    assert (found.st_mode & 0o777, found.st_gid) == (0o660, 990)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"0000:00:04.0": 7}', '{"x": {}}', "[" * 100_000, "\x00\udcff"]
)
def test_a_damaged_memory_does_not_stop_it(machine: Machine, start: StartDaemon, text: str) -> None:
    machine.add_function("v5p")
    machine.tree.folder("/run/tpu-agent")
    Path(machine.tree.at(RECORDS)).write_bytes(text.encode(errors="surrogateescape"))
    assert start(machine).wait_ready() == "1 of 1 v5p functions ready"


def test_a_memory_of_functions_that_are_not_there_is_no_harm(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v5p")
    record = {"previous": None, "released": True, "failure": None}
    machine.tree.put(RECORDS, json.dumps({"0000:00:1f.0": record}))
    assert start(machine).wait_ready() == "1 of 1 v5p functions ready"


def test_a_group_of_users_that_does_not_exist_is_said_and_the_mode_still_set(
    machine: Machine, start: StartDaemon
) -> None:
    address = machine.add_function("v5p")
    machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  group: nobody-knows\n")
    assert "no group nobody-knows" in start(machine).wait_ready()
    assert machine.mode(machine.node(address)) == 0o666


def test_it_says_that_another_one_has_the_lock_and_does_not_end(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v5p")
    with machine.host.lock(LOCK, 1):
        daemon = start(machine)
        daemon.wait_log("agent_started")
        daemon.wait_status("looking for TPU functions")
    assert daemon.wait_ready() == "1 of 1 v5p functions ready"


def test_a_second_one_ends_at_once_and_names_the_first(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v6e")
    first = start(machine)
    first.wait_ready()
    second = start(machine)
    assert second.wait_end() == InUse.exit_code
    assert f"cannot run the agent: another one runs already: process {first.process.pid} holds it" in second.log[-1]
    assert machine.host.read(status.STATUS_FILE), "the first one's"


@pytest.mark.parametrize("fault", ["RuntimeError", "AttributeError"])
def test_a_worker_that_raises_ends_it_so_that_systemd_starts_it_again(
    machine: Machine, start: StartDaemon, fault: str
) -> None:
    machine.add_function("v5p")
    script = f"""
import sys
from tests.fakes.host import FakeHost
from tpuagent import cli
def open_monitor():
    raise {fault}("it broke")
sys.exit(cli.main(sys.argv[2:], host=FakeHost(sys.argv[1]), open_monitor=open_monitor))
"""
    daemon = start(machine, program=("-c", script))
    assert daemon.wait_end() == 1
    assert daemon.log[-2:] == [
        f"error worker_died worker=devices exc_type={fault} reason='it broke'",
        "info agent_stopped code=1",
    ]
    assert "READY=1" not in [one.text for one in daemon.messages]
    assert status.read_status(machine.host) is None


def test_without_events_it_is_ready_as_well(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v5p")
    script = """
import sys
from tests.fakes.host import FakeHost
from tpuagent import cli
def open_monitor():
    raise OSError("no netlink")
sys.exit(cli.main(sys.argv[2:], host=FakeHost(sys.argv[1]), open_monitor=open_monitor))
"""
    daemon = start(machine, program=("-c", script))
    assert daemon.wait_ready() == "1 of 1 v5p functions ready"
    daemon.wait_log("monitor_unavailable", "no netlink")


def test_each_line_of_its_log_is_one_event_without_colours(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v5p")
    machine.refuse("*/vfio-pci/bind", 22)
    daemon = start(machine, "--debug")
    daemon.wait_ready()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait_end() == 0
    assert all(
        line.split(" ", 1)[0] in {"debug", "info", "warning", "error"} and line.isprintable() for line in daemon.log
    )
    assert next(line for line in daemon.log if not line.startswith("debug ")).startswith("info agent_started ")
    assert daemon.log[-1] == "info agent_stopped code=0"
