"""How does a function come to vfio-pci, and what if it does not?"""

from __future__ import annotations

import errno

import pytest

from tests.devices import passes
from tests.fakes.machine import Machine
from tests.fakes.uevents import FakeMonitor
from tpuagent.devices.policy import Policy
from tpuagent.errors import ModuleUnavailable, NodeFault, NoIommu, RefusedByKernel

TYPE1_SWITCH = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
IOMMUFD_SWITCH = "/sys/module/iommufd/parameters/allow_unsafe_interrupts"


def test_a_function_without_a_driver_is_bound_without_an_unbind(machine: Machine) -> None:
    machine.add_function("v5p")
    outcome = passes.keep(machine)
    assert passes.all_ready(outcome)
    assert [str(step).partition(" ")[2] for step in outcome.reports[0].steps] == [
        "set driver override to vfio-pci", "bind to vfio-pci", "await its node", "nodes set access to 0666 0:0",
    ]  # fmt: skip


def test_a_function_of_another_driver_gets_its_override_before_it_is_unbound(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    outcome = passes.keep(machine)
    assert machine.driver(function) == "vfio-pci"
    assert [str(step).partition(" ")[2] for step in outcome.reports[0].steps][:3] == [
        "set driver override to vfio-pci", "unbind from old", "bind to vfio-pci",
    ]  # fmt: skip


def test_a_right_function_is_not_written_to(machine: Machine) -> None:
    machine.add_function("v6e")
    passes.keep(machine)
    machine.refuse("/sys/bus/pci/*", errno.EIO, times=1000)
    outcome = passes.keep(machine)
    assert passes.all_ready(outcome)
    assert not outcome.changed


def test_a_bind_that_the_kernel_only_reports_is_a_failure_and_the_old_driver_comes_back(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    machine.swallow(passes.bind_path("vfio-pci"))
    outcome = passes.keep(machine)
    fault = passes.report(outcome, function).error
    assert isinstance(fault, RefusedByKernel)
    assert "reported success, but the driver is none" in str(fault)
    assert passes.states(outcome) == {function: "failed"}
    assert (machine.driver(function), machine.override(function)) == ("old", None)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EAGAIN, errno.ENODEV, errno.ENOMEM])
def test_a_refused_bind_leaves_no_override_and_says_what_the_kernel_said(machine: Machine, number: int) -> None:
    function = machine.add_function("v6e")
    machine.refuse(passes.bind_path("vfio-pci"), number)
    outcome = passes.keep(machine)
    assert f"cannot bind {function} to vfio-pci: " in passes.error_of(outcome, function)
    assert f"({errno.errorcode[number]})" in passes.error_of(outcome, function)
    assert (machine.driver(function), machine.override(function)) == (None, None)


def test_one_that_fails_does_not_keep_the_others(machine: Machine) -> None:
    functions = [machine.add_function("v6e", driver="old") for _ in range(3)]
    machine.refuse(passes.bind_path("vfio-pci"), errno.EINVAL, text=functions[1])
    outcome = passes.keep(machine)
    assert list(passes.states(outcome).values()) == ["ready", "failed", "ready"]
    assert [machine.driver(address) for address in functions] == ["vfio-pci", "old", "vfio-pci"]
    assert passes.all_ready(passes.bind(machine))


def test_when_the_way_back_is_refused_too_both_reasons_are_told(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    machine.refuse(passes.bind_path("*"), errno.ENOMEM, times=2)
    message = passes.error_of(passes.keep(machine), function)
    assert "to vfio-pci" in message
    assert f"and then could not bind {function} to old" in message
    assert message.count("(ENOMEM)") == 2


def test_without_an_iommu_the_old_driver_keeps_the_function_and_the_iommu_is_named(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    machine = Machine.create(str(tmp_path_factory.mktemp("no-iommu")), iommu=False)
    function = machine.add_function("v5p", driver="old")
    monitor = FakeMonitor(machine.root)
    outcome = passes.keep(machine)
    assert isinstance(passes.report(outcome, function).error, NoIommu)
    assert "intel_iommu=on,sm_on" in passes.report(outcome, function).reason
    assert passes.states(outcome) == {function: "blocked"}
    assert machine.driver(function) == "old"
    assert monitor.receive() == []
    monitor.close()


def test_a_function_that_is_pulled_out_in_the_middle_does_not_stop_the_pass(machine: Machine) -> None:
    gone, stays = machine.add_function("v6e"), machine.add_function("v6e")
    gate = machine.stop_at(passes.bind_path("vfio-pci"), text=gone)
    with passes.in_background(lambda: passes.keep(machine)) as outcome:
        gate.wait_reached()
        machine.unplug(gone)
        gate.open()
    assert passes.states(outcome()) == {stays: "ready"}


def test_somebody_else_who_binds_it_first_is_no_fault(machine: Machine) -> None:
    function = machine.add_function("v6e")
    gate = machine.stop_at(passes.bind_path("vfio-pci"), text=function)
    with passes.in_background(lambda: passes.keep(machine)) as outcome:
        gate.wait_reached()
        machine.host.write_attribute("/sys/bus/pci/drivers_probe", function)
        gate.open()
    assert passes.all_ready(outcome())


# Nodes that take their time ----------------------------------------------------------------------------------------


def test_a_node_that_comes_late_is_waited_for(machine: Machine) -> None:
    function = machine.add_function("v6e")
    machine.delay_nodes(0.3)
    assert passes.all_ready(passes.keep(machine))
    assert machine.mode(machine.node(function)) == 0o666


def test_a_node_that_never_comes_is_a_clear_failure_and_the_function_stays_bound(machine: Machine) -> None:
    function = machine.add_function("v6e")
    machine.delay_nodes(float("inf"))
    outcome = passes.keep(machine, limits=passes.SHORT)
    assert isinstance(passes.report(outcome, function).error, NodeFault)
    assert f"{machine.node(function)} did not appear within 1 s" in passes.error_of(outcome, function)
    assert passes.states(outcome) == {function: "failed"}
    assert machine.driver(function) == "vfio-pci"


# Modules -----------------------------------------------------------------------------------------------------------


def test_modules_are_loaded_when_there_is_a_tpu(tmp_path_factory: pytest.TempPathFactory) -> None:
    machine = Machine.create(str(tmp_path_factory.mktemp("modules")), vfio_modules="available")
    machine.add_function("v6e")
    outcome = passes.keep(machine)
    assert passes.all_ready(outcome)
    assert "load module vfio-pci" in passes.steps(outcome)
    assert {"vfio_pci", "vfio_iommu_type1"} <= set(machine.host.names("/sys/module"))


def test_modules_that_are_built_in_count_as_loaded(tmp_path_factory: pytest.TempPathFactory) -> None:
    machine = Machine.create(str(tmp_path_factory.mktemp("modules")), vfio_modules="builtin")
    machine.add_function("v6e")
    outcome = passes.keep(machine)
    assert passes.all_ready(outcome)
    assert [step for step in passes.steps(outcome) if step.startswith("load")] == []


def test_without_the_module_its_package_is_named_and_no_function_is_taken_from_its_driver(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    machine = Machine.create(str(tmp_path_factory.mktemp("modules")), vfio_modules="absent")
    function = machine.add_function("v6e", driver="old")
    monitor = FakeMonitor(machine.root)
    outcome = passes.keep(machine)
    assert any("6.1.0-fake" in str(error) for error in outcome.errors)
    assert isinstance(passes.report(outcome, function).error, ModuleUnavailable)
    assert passes.states(outcome) == {function: "failed"}
    assert machine.driver(function) == "old"
    assert monitor.receive() == []
    monitor.close()


@pytest.mark.parametrize("cdevs", [False, True])
@pytest.mark.parametrize(
    ("architecture", "wanted", "then"),
    [("x86_64", None, "Y"), ("aarch64", None, "N"), ("x86_64", False, "N"), ("aarch64", True, "Y")],
)
def test_unsafe_interrupts_are_switched_in_both_modules_as_asked(
    tmp_path_factory: pytest.TempPathFactory, architecture: str, wanted: bool | None, then: str, cdevs: bool
) -> None:
    root = str(tmp_path_factory.mktemp("modules"))
    machine = Machine.create(root, architecture=architecture, cdevs=cdevs)
    machine.add_function("v6e")
    assert passes.all_ready(passes.keep(machine, Policy(unsafe_interrupts=wanted)))
    assert machine.host.read(TYPE1_SWITCH) == then
    assert machine.host.read(IOMMUFD_SWITCH) == (then if cdevs else None)
    assert not passes.keep(machine, Policy(unsafe_interrupts=wanted)).changed


def test_a_switch_is_taken_back_when_it_is_no_longer_wanted(machine: Machine) -> None:
    machine.add_function("v6e")
    passes.keep(machine)
    passes.keep(machine, Policy(unsafe_interrupts=False))
    assert machine.host.read(TYPE1_SWITCH) == "N"


def test_a_switch_that_does_not_move_is_told_and_the_functions_are_bound_all_the_same(machine: Machine) -> None:
    function = machine.add_function("v6e")
    machine.swallow(TYPE1_SWITCH)
    outcome = passes.keep(machine)
    assert passes.states(outcome) == {function: "ready"}
    assert ["still reads N" in str(error) for error in outcome.errors] == [True]
