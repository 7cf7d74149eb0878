"""Does the daemon's worker look again when, and only when, there is a reason?"""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

import pytest

from tests.devices import passes
from tests.fakes import uevents
from tests.fakes.machine import Machine
from tests.fakes.uevents import FakeMonitor
from tests.test_deadline import children
from tpuagent.devices.apply import Limits
from tpuagent.devices.policy import Policy
from tpuagent.devices.report import Pass
from tpuagent.devices.watch import DeviceWatch
from tpuagent.errors import TpuAgentError
from tpuagent.values import replace

# Far below the times after which the worker looks again by itself.
SOON_S = 5.0
QUIET_S = 0.25


class Watched:
    """A worker at work, and what it tells."""

    def __init__(self, machine: Machine, policy: Policy = Policy(), limits: Limits = passes.LONG) -> None:
        self.told: SimpleQueue[Pass | TpuAgentError] = SimpleQueue()
        self.opened = 0
        self._machine = machine
        self.watch = DeviceWatch(machine.host, policy, self._open, self.told.put, limits)

    def _open(self) -> FakeMonitor:
        self.opened += 1
        return FakeMonitor(self._machine.root)

    def until(self, true: Callable[[Pass], bool]) -> Pass:
        """The next pass of which something is true."""
        while True:
            outcome = self.told.get(timeout=SOON_S)
            if isinstance(outcome, Pass) and true(outcome):
                return outcome

    def passes_until_quiet(self, most: int = 20) -> int:
        """How many passes come before there is none for a while; counted up to `most`."""
        count = 0
        with contextlib.suppress(Empty):
            while count < most:
                self.told.get(timeout=QUIET_S)
                count += 1
        return count


@pytest.fixture
def watched(machine: Machine) -> Iterator[Watched]:
    """A worker on a machine with one function, after its first pass and what follows from that."""
    machine.add_function("v6e")
    with _running(Watched(machine)) as at_work:
        at_work.until(passes.all_ready)
        at_work.passes_until_quiet()
        yield at_work


@contextlib.contextmanager
def _running(watched: Watched) -> Iterator[Watched]:
    thread = threading.Thread(target=watched.watch.run)
    thread.start()
    try:
        yield watched
    finally:
        watched.watch.stop()
        thread.join(SOON_S)
        assert not thread.is_alive()


def test_the_monitor_is_open_before_the_first_look(machine: Machine) -> None:
    gate = machine.stop_at(passes.bind_path("vfio-pci"))
    first = machine.add_function("v6e")
    with _running(Watched(machine)) as at_work:
        gate.wait_reached()
        assert at_work.opened == 1
        second = machine.plug("v6e")
        gate.open()
        outcome = at_work.until(lambda seen: len(seen.reports) == 2 and passes.all_ready(seen))
        assert list(passes.states(outcome)) == [first, second]


def test_own_writes_cause_one_more_look_and_no_loop(machine: Machine) -> None:
    for _ in range(4):
        machine.add_function("v6e", driver="old")
    with _running(Watched(machine)) as at_work:
        assert at_work.passes_until_quiet() <= 3
        assert passes.all_ready(passes.look(machine))


def test_a_bind_that_always_fails_causes_no_loop(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    machine.refuse(passes.bind_path("vfio-pci"), errno.EINVAL, times=100_000)
    with _running(Watched(machine)) as at_work:
        assert at_work.passes_until_quiet() <= 3
    assert machine.driver(function) == "old"


def test_a_function_that_is_plugged_in_is_made_usable(machine: Machine, watched: Watched) -> None:
    function = machine.plug("v5p")
    outcome = watched.until(lambda seen: len(seen.reports) == 2 and passes.all_ready(seen))
    assert passes.states(outcome)[function] == "ready"


def test_a_function_that_is_pulled_out_is_no_longer_reported(machine: Machine, watched: Watched) -> None:
    (function,) = passes.states(passes.look(machine))
    machine.unplug(function)
    watched.until(lambda seen: seen.reports == ())


def test_a_rebind_by_hand_is_repaired(machine: Machine, watched: Watched) -> None:
    (function,) = passes.states(passes.look(machine))
    machine.rebind(function)
    watched.until(lambda seen: passes.all_ready(seen) and seen.changed)
    assert machine.mode(machine.node(function)) == 0o666


def test_an_unbind_by_hand_is_undone(machine: Machine, watched: Watched) -> None:
    (function,) = passes.states(passes.look(machine))
    machine.write(passes.unbind_path("vfio-pci"), function)
    watched.until(lambda seen: passes.all_ready(seen) and seen.changed)
    assert machine.driver(function) == "vfio-pci"


def test_a_quiet_worker_has_no_child_and_makes_another_when_there_is_work(machine: Machine) -> None:
    before = children()
    function = machine.add_function("v6e")
    with _running(Watched(machine, limits=replace(passes.LONG, idle_s=0.01))) as at_work:
        for _ in range(2):
            at_work.until(lambda seen: passes.all_ready(seen) and seen.changed)
            at_work.passes_until_quiet()
            assert children() <= before
            machine.write(passes.unbind_path("vfio-pci"), function)


def test_an_operator_s_unbind_is_respected(machine: Machine, watched: Watched) -> None:
    (function,) = passes.states(passes.look(machine))
    passes.unbind(machine, function)
    watched.until(lambda seen: passes.states(seen) == {function: "released"})
    watched.passes_until_quiet()
    assert machine.driver(function) is None


def test_lost_events_are_made_good_by_a_new_monitor_and_a_look(machine: Machine, watched: Watched) -> None:
    (function,) = passes.states(passes.look(machine))
    machine.chmod(machine.node(function), 0o600)
    machine.lose_events()
    watched.until(lambda seen: passes.all_ready(seen) and seen.changed)
    assert watched.opened == 2
    machine.rebind(function)
    watched.until(lambda seen: passes.all_ready(seen) and seen.changed)


def test_after_a_storm_of_events_the_host_is_right_and_all_is_quiet(machine: Machine, watched: Watched) -> None:
    (function,) = passes.states(passes.look(machine))
    for _ in range(50):
        machine.chmod(machine.node(function), 0o600)
        machine.write(passes.override_path(function), "vfio-pci\n")
        uevents.send(machine.tree, "pci", "change", function)
    assert watched.passes_until_quiet(most=500) < 500
    assert passes.all_ready(passes.look(machine))


def test_another_policy_is_followed_at_once(machine: Machine, watched: Watched) -> None:
    (function,) = passes.states(passes.look(machine))
    watched.watch.follow(Policy(mode=0o660, group="tpu"))
    watched.until(lambda seen: passes.all_ready(seen) and seen.changed)
    assert machine.mode(machine.node(function)) == 0o660


def test_without_a_monitor_the_functions_are_made_usable_all_the_same(machine: Machine) -> None:
    machine.add_function("v6e")

    def refuse() -> FakeMonitor:
        raise OSError(errno.EPERM, "no netlink here")

    told: SimpleQueue[Pass | TpuAgentError] = SimpleQueue()
    watch = DeviceWatch(machine.host, Policy(), refuse, told.put)
    thread = threading.Thread(target=watch.run)
    thread.start()
    outcome = told.get(timeout=SOON_S)
    assert isinstance(outcome, Pass)
    assert passes.all_ready(outcome)
    watch.stop()
    thread.join(SOON_S)
    assert not thread.is_alive()


def test_it_stops_at_once_also_while_the_kernel_does_not_answer(machine: Machine) -> None:
    machine.add_function("v6e")
    gate = machine.stop_at(passes.bind_path("vfio-pci"))
    with _running(Watched(machine, limits=Limits(write_s=1.0))):
        gate.wait_reached()
    gate.open()
