"""Does it end within seconds whatever it is doing, and leave the devices as they are?"""

from __future__ import annotations

import signal
import time

import pytest

from tests.agent.conftest import StartDaemon
from tests.fakes.machine import Machine
from tpuagent import cli


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_when_idle_it_ends_at_once_and_leaves_the_devices_bound(
    machine: Machine, start: StartDaemon, number: signal.Signals
) -> None:
    address = machine.add_function("v5p")
    daemon = start(machine)
    daemon.wait_ready()
    began = time.monotonic()
    daemon.signal(number)
    assert daemon.wait_end() == 0
    assert time.monotonic() - began < 5
    assert daemon.messages[-1].text == "STOPPING=1"
    assert machine.driver(address) == "vfio-pci"
    assert machine.mode(machine.node(address)) == 0o666


def test_before_it_is_ready_and_in_a_step_that_the_kernel_does_not_end_it_ends_within_seconds(
    machine: Machine, start: StartDaemon
) -> None:
    for _ in range(8):
        machine.add_function("v5p")
    gate = machine.stop_at("*/vfio-pci/bind")
    daemon = start(machine)
    gate.wait_reached()
    began = time.monotonic()
    daemon.signal(signal.SIGTERM)
    daemon.wait_message("STOPPING=1")
    assert time.monotonic() - began < 4, "told at once, and not after the step"
    assert daemon.wait_end() == 0
    assert time.monotonic() - began < 10
    assert "READY=1" not in [one.text for one in daemon.messages]
    gate.open()


def test_stopping_and_starting_touches_nothing(machine: Machine, start: StartDaemon) -> None:
    address = machine.add_function("v5p")
    daemon = start(machine)
    daemon.wait_ready()
    machine.hold(address)
    daemon.stop()
    before = machine.host.stat(machine.node(address))
    machine.refuse("*", 5, times=1000)
    daemon = start(machine)
    assert daemon.wait_ready() == "1 of 1 v5p functions ready"
    after = machine.host.stat(machine.node(address))
    assert before
    assert after
    assert (before.st_ino, before.st_ctime) == (after.st_ino, after.st_ctime)
    assert daemon.wait_log("function_ready", "steps=0")


def test_killed_in_mid_pass_another_one_finishes_what_it_began(machine: Machine, start: StartDaemon) -> None:
    addresses = [machine.add_function("v5p", driver="gasket") for _ in range(4)]
    gate = machine.stop_at("*/vfio-pci/bind", text=addresses[2])
    daemon = start(machine)
    gate.wait_reached()
    daemon.signal(signal.SIGKILL)
    daemon.process.wait()
    assert [machine.driver(address) for address in addresses] == ["vfio-pci", "vfio-pci", None, "gasket"]
    gate.open()
    assert start(machine).wait_ready() == "4 of 4 v5p functions ready"
    for address in addresses:
        assert machine.driver(address) == "vfio-pci"
        assert cli.main(["unbind", address], host=machine.host) == 0
        assert machine.driver(address) == "gasket", "the driver before is remembered, also by whoever did not see it"
        assert machine.override(address) is None


def test_killed_it_is_seen_to_be_gone_and_another_one_takes_over(
    machine: Machine, start: StartDaemon, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.add_function("v5p")
    daemon = start(machine)
    daemon.wait_ready()
    assert cli.main(["status"], host=machine.host) == 0
    assert capsys.readouterr().out.startswith("ready: 1 of 1 v5p functions ready\n")
    daemon.signal(signal.SIGKILL)
    daemon.process.wait()
    assert cli.main(["status"], host=machine.host) == 3
    assert start(machine).wait_ready() == "1 of 1 v5p functions ready"
    assert cli.main(["status"], host=machine.host) == 0
