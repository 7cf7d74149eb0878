"""Is the watchdog fed by the main process, in time, and only while its workers are alive?"""

from __future__ import annotations

from itertools import pairwise

from tests.agent.conftest import StartDaemon
from tests.agent.daemon import Daemon
from tests.fakes.machine import Machine

PING = "WATCHDOG=1"


def wait_pings(daemon: Daemon, count: int) -> list[float]:
    """When the next so many pings came."""
    since, times = len(daemon.messages), []
    for _ in range(count):
        ping = daemon.wait_message(PING, since)
        since = daemon.messages.index(ping) + 1
        times.append(ping.at_s)
    return times


def test_it_pings_at_half_the_limit_also_when_that_is_a_fraction(machine: Machine, start: StartDaemon) -> None:
    daemon = start(machine, watchdog_s=1.5)
    daemon.wait_ready()
    times = wait_pings(daemon, 14)  # those after the events of the start are the timer's
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) < 1.5
    assert max(gaps) > 1.5 / 4, "and no more often than needed"


def test_it_pings_while_a_step_waits_in_the_kernel_and_no_child_ever_does(machine: Machine, start: StartDaemon) -> None:
    machine.add_function("v5p")
    gate = machine.stop_at("*/vfio-pci/bind")
    daemon = start(machine, watchdog_s=0.2)
    gate.wait_reached()
    assert len(wait_pings(daemon, 4)) == 4
    gate.open()
    daemon.wait_ready()
    daemon.stop()
    assert {one.pid for one in daemon.messages} == {daemon.process.pid}


def test_without_a_watchdog_and_without_a_service_manager_it_works_as_well(
    machine: Machine, start: StartDaemon
) -> None:
    daemon = start(machine)
    daemon.wait_ready()
    daemon.stop()
    daemon = start(machine, program=("-c", _WITHOUT_SOCKET))
    daemon.wait_log("agent_ready")
    daemon.stop()
    assert daemon.messages == []


def test_what_makes_a_process_notify_is_not_handed_on(machine: Machine, start: StartDaemon) -> None:
    daemon = start(machine, program=("-c", _WITH_A_CHILD), watchdog_s=60)
    daemon.wait_ready()
    names = {line.partition("=")[0] for line in (machine.tree.text("/environment") or "").splitlines()}
    assert "PATH" in names
    assert not names & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}


_WITHOUT_SOCKET = """
import os, runpy
del os.environ["NOTIFY_SOCKET"]
runpy.run_module("tests.fakes", run_name="__main__")
"""

_WITH_A_CHILD = """
import subprocess, sys
from tests.fakes.host import FakeHost
from tests.fakes.uevents import FakeMonitor
from tpuagent import cli
def open_monitor():
    with open(sys.argv[1] + "/environment", "w") as file:
        subprocess.run(["env"], stdout=file, check=True)
    return FakeMonitor(sys.argv[1])
sys.exit(cli.main(sys.argv[2:], host=FakeHost(sys.argv[1]), open_monitor=open_monitor))
"""
