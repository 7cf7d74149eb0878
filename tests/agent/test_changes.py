"""Does it notice what happens to the devices, and to its configuration, and put right what is wrong?"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys

import pytest

from tests.agent.conftest import StartDaemon
from tests.agent.daemon import Daemon
from tests.conftest import REPOSITORY, start_unbind
from tests.fakes import uevents
from tests.fakes.machine import Machine
from tpuagent import cli, configfiles, status
from tpuagent.devices.reconcile import LOCK


@pytest.fixture
def addresses(machine: Machine) -> list[str]:
    return [machine.add_function("v5p") for _ in range(3)]


@pytest.fixture
def daemon(machine: Machine, addresses: list[str], start: StartDaemon) -> Daemon:
    """A daemon that has made its first pass over three functions."""
    assert addresses
    daemon = start(machine)
    assert daemon.wait_ready() == "3 of 3 v5p functions ready"
    return daemon


def rebind(machine: Machine, address: str) -> None:
    """Somebody unbinds and binds by hand, faster than the agent puts the first half right."""
    with machine.host.lock(LOCK, 10):
        machine.rebind(address)


def lose_events(machine: Machine, daemon: Daemon) -> None:
    """Let it lose events, and wait until it knows.

    More than once: a simulated loss that comes while the daemon is reading is only seen at its next reading.
    """
    seen = len(daemon.log)
    for _ in range(10):
        machine.lose_events()
        with contextlib.suppress(TimeoutError):
            daemon.wait_log("events_lost", since=seen, limit_s=2)
            return
    raise TimeoutError("no loss was noticed")


# Devices ----------------------------------------------------------------------------------------------------------


def test_a_function_that_is_plugged_in_is_bound_and_opened(machine: Machine, daemon: Daemon) -> None:
    address = machine.plug("v5p")
    daemon.wait_status("4 of 4 v5p functions ready")
    assert machine.driver(address) == "vfio-pci"
    assert machine.mode(machine.node(address)) == 0o666
    daemon.wait_log("function_ready", address)


def test_a_function_that_is_pulled_out_is_forgotten(machine: Machine, addresses: list[str], daemon: Daemon) -> None:
    machine.unplug(addresses[0])
    daemon.wait_status("2 of 2 v5p functions ready")
    daemon.wait_log("function_gone", addresses[0])


def test_a_function_of_another_kind_that_is_plugged_in_is_not_touched(machine: Machine, daemon: Daemon) -> None:
    other = machine.plug("network")
    machine.plug("v5p")
    daemon.wait_status("4 of 4 v5p functions ready")
    assert (machine.driver(other), machine.override(other)) == (None, None)


def test_a_function_that_is_rebound_by_hand_is_opened_again(
    machine: Machine, addresses: list[str], daemon: Daemon
) -> None:
    for address in addresses:
        seen = len(daemon.log)
        rebind(machine, address)
        daemon.wait_log("function_ready", address, "steps=1", since=seen)
        assert machine.mode(machine.node(address)) == 0o666


def test_a_function_that_is_unbound_by_hand_is_bound_again(
    machine: Machine, addresses: list[str], daemon: Daemon
) -> None:
    seen = len(daemon.log)
    machine.write("/sys/bus/pci/drivers/vfio-pci/unbind", addresses[1])
    daemon.wait_log("function_ready", addresses[1], since=seen)
    assert machine.driver(addresses[1]) == "vfio-pci"


@pytest.mark.parametrize("subsystem", ["vfio", "pci"])
def test_a_node_that_was_closed_by_hand_is_opened_at_the_next_event_of_any_kind(
    machine: Machine, addresses: list[str], daemon: Daemon, subsystem: str
) -> None:
    node = machine.node(addresses[2])
    seen = len(daemon.log)
    machine.chmod(node, 0o600)
    uevents.send(machine.tree, subsystem, "change", addresses[2])
    daemon.wait_log("function_ready", addresses[2], "steps=1", since=seen)
    assert machine.mode(node) == 0o666


def test_a_burst_of_events_is_one_pass_or_two_and_not_hundreds(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v5p")
    daemon = start(machine, "--debug")
    daemon.wait_ready()
    with machine.host.lock(LOCK, 5):
        for number in range(300):
            uevents.send(machine.tree, "pci", "change", f"noise{number}")
    daemon.wait_log("name=noise299")
    machine.plug("v5p")
    daemon.wait_status("2 of 2 v5p functions ready")


def test_lost_events_lead_to_a_new_monitor_and_to_another_look(
    machine: Machine, addresses: list[str], daemon: Daemon
) -> None:
    for round_ in range(2):
        seen = len(daemon.log)
        machine.chmod(machine.node(addresses[0]), 0o600)  # which no event tells
        lose_events(machine, daemon)
        daemon.wait_log("function_ready", addresses[0], "steps=1", since=seen)
        assert machine.mode(machine.node(addresses[0])) == 0o666
        machine.plug("v6e")
        daemon.wait_status(f"{round_ + 1} of {round_ + 1} v6e functions ready")


def test_events_that_nobody_takes_while_a_pass_is_made_do_no_harm(
    machine: Machine, addresses: list[str], daemon: Daemon
) -> None:
    with machine.host.lock(LOCK, 5):
        uevents.send(machine.tree, "pci", "change", addresses[0])
        for number in range(5000):
            uevents.send(machine.tree, "pci", "change", f"noise{number}")
    machine.plug("v5p")
    daemon.wait_status("4 of 4 v5p functions ready")


def test_a_function_that_somebody_elses_unbind_waits_for_is_told_and_the_others_are_kept(
    machine: Machine, addresses: list[str], daemon: Daemon
) -> None:
    pid = machine.hold(addresses[0])
    waiting = start_unbind(machine, addresses[0])
    machine.plug("v5p")
    assert "release pending" in daemon.wait_status("3 of 4 v5p functions ready")
    seen = len(daemon.log)
    rebind(machine, addresses[1])
    daemon.wait_log("function_ready", addresses[1], since=seen)
    machine.let_go(pid)
    waiting.join()
    daemon.wait_status("4 of 4 v5p functions ready", since=len(daemon.messages))


# What an operator does --------------------------------------------------------------------------------------------


def test_a_released_function_stays_released_until_it_is_bound(
    machine: Machine, addresses: list[str], daemon: Daemon, start: StartDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["unbind", addresses[0]], host=machine.host) == 0
    daemon.wait_status("2 of 3 v5p functions ready; 0000:00:04.0 released")
    machine.plug("v5p")
    daemon.wait_status("3 of 4 v5p functions ready; 0000:00:04.0 released")
    assert machine.driver(addresses[0]) is None
    assert cli.main(["status"], host=machine.host) == 1
    daemon.stop()
    daemon = start(machine)
    assert daemon.wait_ready().startswith("3 of 4 v5p functions ready; 0000:00:04.0 released")
    assert cli.main(["bind", addresses[0]], host=machine.host) == 0
    daemon.wait_status("4 of 4 v5p functions ready")
    assert capsys.readouterr().err == ""


def test_all_released_are_said_in_one_sentence(machine: Machine, addresses: list[str], daemon: Daemon) -> None:
    assert cli.main(["unbind", "--all"], host=machine.host) == 0
    summary = daemon.wait_status("0 of 3 v5p functions ready")
    assert summary.count("released") == 1, "the first line of systemctl status is for one look"
    assert all(address not in summary for address in addresses)


def test_bind_and_unbind_beside_the_daemon_wait_for_each_other(
    machine: Machine, addresses: list[str], daemon: Daemon
) -> None:
    verbs = ["unbind", "bind"] * 4
    commands = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.fakes", machine.root, verb, "--all", "--json"],
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for verb in verbs
    ]
    for verb, command in zip(verbs, commands, strict=True):
        out, err = command.communicate(timeout=30)
        assert (command.returncode, err) == (0, "")
        assert {one["state"] for one in json.loads(out)} == {"ready" if verb == "bind" else "released"}
    seen = len(daemon.messages)
    assert cli.main(["bind", "--all"], host=machine.host) == 0
    machine.plug("v5p")
    daemon.wait_status("4 of 4 v5p functions ready", since=seen)
    assert [machine.mode(machine.node(address)) for address in addresses] == [0o666] * 3


# Configuration ----------------------------------------------------------------------------------------------------


def test_a_good_configuration_is_taken_over_at_once(machine: Machine, addresses: list[str], daemon: Daemon) -> None:
    machine.tree.put(configfiles.CONFIG_FILE, f"devices:\n  mode: 0660\n  group: tpu\n  exclude: [{addresses[2]}]\n")
    daemon.signal(signal.SIGHUP)
    daemon.wait_status("2 of 2 v5p functions ready")
    daemon.wait_log("configuration_loaded")
    found = machine.host.stat(machine.node(addresses[0]))
    assert found
    assert (found.st_mode & 0o777, found.st_gid) == (0o660, 990)
    assert machine.mode(machine.node(addresses[2])) == 0o666, "left alone"


def test_with_a_bad_configuration_the_old_one_is_kept_and_the_fault_is_said_until_it_is_mended(
    machine: Machine, addresses: list[str], daemon: Daemon
) -> None:
    machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  mode: 0600\n  mdoe: 0660\n")
    daemon.signal(signal.SIGHUP)
    summary = daemon.wait_status("config.yaml: line 3: devices.mdoe: ")
    assert summary.startswith("3 of 3 v5p functions ready; the old configuration is kept: cannot read ")
    seen = len(daemon.log)
    rebind(machine, addresses[0])
    daemon.wait_log("function_ready", addresses[0], "steps=1", since=seen)
    assert machine.mode(machine.node(addresses[0])) == 0o666
    document = status.read_status(machine.host)
    assert document
    assert document["state"] == "degraded"
    seen, told = len(daemon.log), len(daemon.messages)
    machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  mode: 0660\n")
    daemon.signal(signal.SIGHUP)
    assert daemon.wait_status("3 of 3 v5p functions ready", since=told) == "3 of 3 v5p functions ready"
    daemon.wait_log("function_ready", addresses[-1], "steps=1", since=seen)
    seen = len(daemon.log)
    rebind(machine, addresses[1])
    daemon.wait_log("function_ready", addresses[1], since=seen)
    assert machine.mode(machine.node(addresses[1])) == 0o660


def test_a_configuration_that_has_gone_is_the_default_one(
    machine: Machine, addresses: list[str], start: StartDaemon
) -> None:
    machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  mode: 0660\n")
    daemon = start(machine)
    daemon.wait_ready()
    machine.tree.remove(configfiles.CONFIG_FILE)
    seen = len(daemon.log)
    daemon.signal(signal.SIGHUP)
    daemon.wait_log("function_ready", addresses[-1], "steps=1", since=seen)
    assert [machine.mode(machine.node(address)) for address in addresses] == [0o666] * 3
