"""What does an operator's unbind give back, and how long is it left alone?"""

from __future__ import annotations

import errno

from tests.devices import passes
from tests.fakes.machine import Machine
from tpuagent.devices.work import RECORDS


def test_an_unbind_gives_the_function_back_to_the_driver_it_had(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    passes.keep(machine)
    outcome = passes.unbind(machine, function)
    assert passes.states(outcome) == {function: "released"}
    assert (machine.driver(function), machine.override(function)) == ("old", None)


def test_a_function_that_had_no_driver_gets_none(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    passes.unbind(machine, function)
    assert (machine.driver(function), machine.override(function)) == (None, None)


def test_a_previous_driver_that_does_not_know_the_function_by_itself_takes_it_all_the_same(machine: Machine) -> None:
    function = machine.add_function("v6e")
    machine.host.load_module("pci-stub")
    machine.write(passes.override_path(function), "pci-stub\n")
    machine.write(passes.bind_path("pci-stub"), function)
    passes.keep(machine)
    passes.unbind(machine, function)
    assert machine.driver(function) == "pci-stub"


def test_a_released_function_is_left_alone_until_an_operator_binds_it(machine: Machine) -> None:
    released, kept = (machine.add_function("v6e", driver="old") for _ in range(2))
    passes.keep(machine)
    passes.unbind(machine, released)
    outcome = passes.keep(machine)
    assert passes.states(outcome) == {released: "released", kept: "ready"}
    assert not outcome.changed
    assert passes.all_ready(passes.bind(machine, released))
    assert machine.driver(released) == "vfio-pci"
    assert passes.all_ready(passes.keep(machine))


def test_an_unbind_of_what_is_not_bound_is_done_already_and_leaves_it_released(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    outcome = passes.unbind(machine, function)
    assert passes.report(outcome, function).steps == ()
    assert passes.states(passes.keep(machine)) == {function: "released"}
    assert machine.driver(function) == "old"


def test_a_function_plugged_in_where_a_released_one_was_is_another_one(machine: Machine) -> None:
    function = machine.add_function("v6e")
    other = machine.add_function("v6e")
    passes.keep(machine)
    passes.unbind(machine, function)
    machine.unplug(function)
    assert passes.states(passes.keep(machine)) == {other: "ready"}
    assert machine.plug("v6e", address=function) == function
    assert passes.all_ready(passes.keep(machine))


def test_a_released_function_that_somebody_binds_by_hand_is_opened(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    passes.unbind(machine, function)
    machine.write(passes.override_path(function), "vfio-pci\n")
    machine.write(passes.bind_path("vfio-pci"), function)
    assert passes.all_ready(passes.keep(machine))


def test_when_the_previous_driver_is_gone_the_function_stays_usable_and_the_reason_is_told(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    passes.keep(machine)
    machine.tree.remove("/sys/bus/pci/drivers/old")
    outcome = passes.unbind(machine, function)
    assert "driver old is not loaded" in passes.error_of(outcome, function)
    assert passes.states(outcome) == {function: "ready"}
    assert passes.all_ready(passes.keep(machine))


def test_the_previous_driver_is_on_record_before_it_is_unbound(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    gate = machine.stop_at(passes.unbind_path("old"))
    with passes.in_background(lambda: passes.keep(machine)):
        gate.wait_reached()
        assert '"previous": "old"' in (machine.host.read(RECORDS) or "")
        gate.open()
    passes.unbind(machine, function)
    assert machine.driver(function) == "old"


def test_a_failure_is_remembered_for_a_look_until_a_pass_succeeds(machine: Machine) -> None:
    function = machine.add_function("v6e")
    machine.refuse(passes.bind_path("vfio-pci"), errno.EAGAIN)
    passes.keep(machine)
    assert passes.states(passes.look(machine)) == {function: "failed"}
    assert "(EAGAIN)" in passes.report(passes.look(machine), function).reason
    passes.bind(machine)
    assert passes.all_ready(passes.look(machine))


def test_a_damaged_memory_does_not_stop_a_pass(machine: Machine) -> None:
    machine.add_function("v6e")
    machine.host.replace(RECORDS, '{"0000:00:04.0": {"previous": ')
    assert passes.all_ready(passes.keep(machine))
