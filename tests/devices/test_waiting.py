"""Does everything still answer when the kernel does not?"""

from __future__ import annotations

import errno
import time

from tests.contract.kernel import Background, eventually, unbind
from tests.devices import passes
from tests.fakes.machine import Machine
from tpuagent.devices import reconcile
from tpuagent.devices.apply import Limits
from tpuagent.devices.policy import Policy
from tpuagent.errors import DeadlinePassed


def _held_and_unbound_by_hand(machine: Machine, function: str) -> tuple[int, Background]:
    """A process that holds the function, and somebody's unbind that waits for it in the kernel."""
    pid = machine.hold(function)
    unbinding = Background(lambda: unbind(machine.host, function))
    assert eventually(lambda: machine.driver(function) is None)
    return pid, unbinding


def test_while_somebody_s_unbind_waits_every_command_answers_and_says_release_pending(machine: Machine) -> None:
    stuck, other = machine.add_function("v6e"), machine.add_function("v6e")
    passes.keep(machine)
    pid, unbinding = _held_and_unbound_by_hand(machine, stuck)
    for outcome in (passes.look(machine), passes.keep(machine), passes.bind(machine), passes.unbind(machine)):
        assert passes.states(outcome)[stuck] == "stuck"
        assert "release pending" in passes.report(outcome, stuck).reason
        assert passes.report(outcome, stuck).steps == ()
    assert [holder.pid for holder in passes.report(passes.look(machine), stuck).holders] == [pid]
    assert passes.states(passes.look(machine))[other] == "released"
    assert unbinding.waits()
    machine.let_go(pid)
    assert unbinding.result() == 0


def test_when_the_holder_ends_the_agent_takes_the_function_back(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    pid, unbinding = _held_and_unbound_by_hand(machine, function)
    passes.keep(machine)
    machine.let_go(pid)
    assert unbinding.result() == 0
    assert passes.all_ready(passes.keep(machine))


def test_an_operator_s_unbind_of_what_waits_already_leaves_it_released_in_the_end(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    pid, unbinding = _held_and_unbound_by_hand(machine, function)
    outcome = passes.unbind(machine, function)
    assert isinstance(passes.report(outcome, function).error, DeadlinePassed)
    machine.let_go(pid)
    assert unbinding.result() == 0
    assert passes.states(passes.keep(machine)) == {function: "released"}


def test_a_step_that_the_kernel_does_not_answer_ends_at_its_deadline_and_the_others_are_done(machine: Machine) -> None:
    functions = [machine.add_function("v6e", driver="old") for _ in range(3)]
    gate = machine.stop_at(passes.unbind_path("old"), text=functions[1])
    begin = time.monotonic()
    outcome = passes.keep(machine, limits=Limits(write_s=0.5, node_s=30, lock_s=30))
    assert time.monotonic() - begin < 10
    assert list(passes.states(outcome).values()) == ["ready", "stuck", "ready"]
    assert "did not answer within 0.5 s" in passes.error_of(outcome, functions[1])
    gate.open()


def test_a_holder_who_comes_between_the_look_and_the_unbind_costs_a_deadline_and_no_more(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    gate = machine.stop_at(passes.override_path(function))
    limits = Limits(write_s=2.0, node_s=30, lock_s=30)
    with passes.in_background(lambda: passes.unbind(machine, limits=limits)) as outcome:
        gate.wait_reached()
        pid = machine.hold(function)
        gate.open()
    assert passes.states(outcome()) == {function: "stuck"}
    assert isinstance(passes.report(outcome(), function).error, DeadlinePassed)
    machine.let_go(pid)
    assert eventually(lambda: machine.mode(machine.node(function)) is None)
    assert passes.states(passes.keep(machine)) == {function: "released"}


def test_a_pass_that_waits_does_not_hold_up_a_look(machine: Machine) -> None:
    function = machine.add_function("v6e")
    gate = machine.stop_at(passes.bind_path("vfio-pci"))
    with passes.in_background(lambda: passes.keep(machine)):
        gate.wait_reached()
        assert passes.states(passes.look(machine)) == {function: "unbound"}
        dry = reconcile.bind(machine.host, Policy(), None, dry_run=True)
        assert passes.steps(dry)
        gate.open()


def test_a_second_pass_waits_for_the_first_and_names_it_when_that_takes_too_long(machine: Machine) -> None:
    machine.add_function("v6e")
    gate = machine.stop_at(passes.bind_path("vfio-pci"))
    with passes.in_background(lambda: passes.keep(machine)) as first:
        gate.wait_reached()
        second = Background(lambda: _fault_of(machine))
        assert "process" in str(second.result())
        gate.open()
    assert passes.all_ready(first())


def _fault_of(machine: Machine) -> DeadlinePassed | None:
    try:
        passes.keep(machine, limits=Limits(lock_s=0.2))
    except DeadlinePassed as fault:
        return fault
    return None


def test_a_refusal_after_a_wait_is_told_like_any_other(machine: Machine) -> None:
    function = machine.add_function("v6e")
    machine.refuse(passes.bind_path("vfio-pci"), errno.EAGAIN)
    gate = machine.stop_at(passes.override_path(function))
    with passes.in_background(lambda: passes.keep(machine)) as outcome:
        gate.wait_reached()
        gate.open()
    assert "(EAGAIN)" in passes.error_of(outcome(), function)
