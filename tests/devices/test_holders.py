"""Is a function that a process holds left to it, and the process named?"""

from __future__ import annotations

import pytest

from tests.devices import passes
from tests.fakes.machine import Machine
from tests.fakes.processes import By
from tpuagent.devices.holders import Holder
from tpuagent.errors import InUse


@pytest.mark.parametrize("by", ["device", "group"])
def test_a_function_held_by_a_process_is_refused_and_the_process_named(machine: Machine, by: By) -> None:
    held, free = (machine.add_function("v6e") for _ in range(2))
    passes.keep(machine)
    pid = machine.hold(held, command="python3 train.py --steps 9", by=by)
    outcome = passes.unbind(machine)
    fault = passes.report(outcome, held).error
    assert isinstance(fault, InUse)
    assert f"process {pid} (python3 train.py --steps 9) holds it" in str(fault)
    assert passes.states(outcome)[free] == "released"
    assert (machine.driver(held), machine.override(held)) == ("vfio-pci", "vfio-pci")


def test_a_process_that_closed_the_group_and_kept_the_device_may_hold_any_function_and_is_named_for_it(
    machine: Machine,
) -> None:
    functions = [machine.add_function("v6e") for _ in range(2)]
    passes.keep(machine)
    pid = machine.hold(functions[0], by="device-only")
    outcome = passes.unbind(machine)
    for function in functions:  # which one it is the kernel does not tell
        assert f"process {pid} (python3 train.py) holds it" in passes.error_of(outcome, function)
    assert [machine.driver(function) for function in functions] == ["vfio-pci"] * 2
    machine.let_go(pid)
    assert set(passes.states(passes.unbind(machine)).values()) == {"released"}


def test_who_holds_a_cdev_is_named_as_well(tmp_path_factory: pytest.TempPathFactory) -> None:
    machine = Machine.create(str(tmp_path_factory.mktemp("cdevs")), cdevs=True)
    functions = [machine.add_function("v6e") for _ in range(2)]
    passes.keep(machine)
    pid = machine.hold(functions[1], by="cdev")
    outcome = passes.look(machine)
    assert [one.holders for one in outcome.reports] == [(), (Holder(pid, "python3 train.py"),)]
    assert isinstance(passes.report(passes.unbind(machine), functions[1]).error, InUse)


def test_a_look_lists_the_holders_of_each_function(machine: Machine) -> None:
    functions = [machine.add_function("v6e") for _ in range(3)]
    passes.keep(machine)
    pids = [machine.hold(address, command=f"job {number}") for number, address in enumerate(functions[:2])]
    outcome = passes.look(machine)
    assert [one.holders for one in outcome.reports] == [(Holder(pids[0], "job 0"),), (Holder(pids[1], "job 1"),), ()]


def test_a_process_that_only_has_the_container_open_holds_nothing(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    machine.open_node("/dev/vfio/vfio")
    assert passes.states(passes.unbind(machine)) == {function: "released"}


def test_a_process_that_holds_the_node_of_before_a_rebind_does_not_hold_the_function(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    machine.hold(function, by="group")
    machine.rebind(function)
    assert passes.report(passes.look(machine), function).holders == ()
    assert passes.states(passes.unbind(machine)) == {function: "released"}


def test_a_function_of_another_driver_is_not_torn_from_a_process_that_uses_it(machine: Machine) -> None:
    machine.add_driver("accel-driver", "v6e", makes_accel_nodes=True)
    function = machine.plug("v6e")
    pid = machine.open_node("/dev/accel0", command="jupyter")
    outcome = passes.keep(machine)
    assert isinstance(passes.report(outcome, function).error, InUse)
    assert f"{pid} (jupyter)" in passes.error_of(outcome, function)
    assert passes.states(outcome) == {function: "in-use"}
    assert machine.driver(function) == "accel-driver"
    machine.let_go(pid)
    assert passes.all_ready(passes.keep(machine))


def test_a_held_function_whose_node_is_wrong_is_repaired_under_its_holder(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    machine.hold(function)
    machine.chmod(machine.node(function), 0o600)
    assert passes.all_ready(passes.keep(machine))


def test_a_command_line_is_shown_on_one_line_and_cut(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    pid = machine.hold(function)
    machine.tree.put(f"/proc/{pid}/cmdline", "python3\0-c\0import os\nprint('\x1b[31m" + "x" * 500 + "')\0")
    (holder,) = passes.report(passes.look(machine), function).holders
    assert holder.command.isprintable()
    assert len(holder.command) <= 80
    machine.tree.put(f"/proc/{pid}/cmdline", "")
    assert passes.report(passes.look(machine), function).holders == (Holder(pid, "python3"),)
