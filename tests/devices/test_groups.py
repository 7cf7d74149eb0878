"""Whom does a function share its IOMMU group with, and what follows from that?"""

from __future__ import annotations

import threading

import pytest

from tests.devices import passes
from tests.fakes.machine import Machine
from tpuagent.devices.pci import parse_address
from tpuagent.devices.policy import Policy
from tpuagent.errors import NoIommu

SWITCH = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"


def test_a_bridge_in_the_group_does_not_count(machine: Machine) -> None:
    bridge = machine.add_other("bridge", driver="pcieport", group="7")
    machine.add_function("v6e", group="7")
    assert passes.all_ready(passes.keep(machine))
    assert machine.driver(bridge) == "pcieport"


def test_another_endpoint_on_its_driver_blocks_the_group_is_named_and_is_not_taken(machine: Machine) -> None:
    card = machine.add_other("network", driver="gve", group="7")
    function = machine.add_function("v6e", driver="old", group="7")
    outcome = passes.keep(machine)
    assert isinstance(passes.report(outcome, function).error, NoIommu)
    assert f"{card} (gve)" in passes.report(outcome, function).reason
    assert passes.states(outcome) == {function: "blocked"}
    assert (machine.driver(card), machine.driver(function)) == ("gve", "old")


@pytest.mark.parametrize("driver", [None, "pci-stub"])
def test_an_endpoint_that_nobody_drives_does_not_block_the_group(machine: Machine, driver: str | None) -> None:
    machine.add_other("network", driver=driver, group="7")
    machine.add_function("v6e", group="7")
    assert passes.all_ready(passes.keep(machine))


def test_two_functions_of_a_group_share_its_node_and_are_both_taken_from_their_drivers(machine: Machine) -> None:
    functions = [machine.add_function("tpu7x", driver="old", group="7") for _ in range(2)]
    outcome = passes.keep(machine)
    assert passes.all_ready(outcome)
    assert {one.function.group_node for one in outcome.reports} == {"/dev/vfio/7"}
    assert [machine.driver(address) for address in functions] == ["vfio-pci", "vfio-pci"]


def test_one_of_a_group_that_is_given_back_to_its_driver_blocks_the_other(machine: Machine) -> None:
    first, second = (machine.add_function("tpu7x", driver="old", group="7") for _ in range(2))
    passes.keep(machine)
    passes.unbind(machine, first)
    outcome = passes.keep(machine)
    assert passes.states(outcome) == {first: "released", second: "blocked"}
    assert f"{first} (old)" in passes.report(outcome, second).reason


def test_an_excluded_function_of_the_group_on_its_driver_blocks_the_other(machine: Machine) -> None:
    left, other = (machine.add_function("tpu7x", driver="old", group="7") for _ in range(2))
    outcome = passes.keep(machine, Policy(exclude=frozenset({parse_address(left)})))
    assert passes.states(outcome) == {other: "blocked"}
    assert f"{left} (old)" in passes.report(outcome, other).reason
    assert machine.driver(other) == "old"


def test_one_of_a_group_without_a_driver_is_not_taken_for_one_that_waits_for_its_user(machine: Machine) -> None:
    first, second = (machine.add_function("tpu7x", group="7") for _ in range(2))
    passes.keep(machine)
    machine.write(passes.unbind_path("vfio-pci"), first)
    assert passes.states(passes.look(machine)) == {first: "unbound", second: "ready"}
    assert passes.all_ready(passes.keep(machine))


# Without an IOMMU --------------------------------------------------------------------------------------------------


def _without_iommu(factory: pytest.TempPathFactory, *, no_iommu_mode: bool) -> tuple[Machine, str]:
    machine = Machine.create(str(factory.mktemp("machine")), iommu=False, no_iommu_mode=no_iommu_mode)
    return machine, machine.add_function("v6e", driver="old")


def test_no_iommu_mode_is_used_only_if_it_is_allowed(tmp_path_factory: pytest.TempPathFactory) -> None:
    machine, function = _without_iommu(tmp_path_factory, no_iommu_mode=True)
    assert passes.states(passes.keep(machine)) == {function: "blocked"}
    assert machine.host.read(SWITCH) == "N"
    outcome = passes.keep(machine, Policy(allow_no_iommu=True))
    assert passes.states(outcome) == {function: "ready"}
    assert machine.host.read(SWITCH) == "Y"
    assert machine.mode("/dev/vfio/noiommu-0") == 0o666
    assert outcome.reports[0].function.group_node == "/dev/vfio/noiommu-0"
    assert "no-IOMMU mode" in passes.report(outcome, function).reason
    assert not passes.keep(machine, Policy(allow_no_iommu=True)).changed


def test_nothing_is_bound_without_an_iommu_before_the_kernel_was_told_that_it_may(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    machine = Machine.create(str(tmp_path_factory.mktemp("machine")), iommu=False, no_iommu_mode=True)
    function = machine.add_function("v6e")
    machine.host.load_module("vfio-pci")
    telling, binding = machine.stop_at(SWITCH), machine.stop_at("*/vfio-pci/bind")
    policy = Policy(allow_no_iommu=True)
    passing = threading.Thread(target=passes.keep, args=(machine, policy), daemon=True)
    passing.start()
    telling.wait_reached()
    with pytest.raises(TimeoutError):
        binding.wait_reached(0.3)
    telling.open()
    binding.open()
    passing.join()
    assert passes.states(passes.keep(machine, policy)) == {function: "ready"}


def test_a_function_that_is_in_no_iommu_mode_without_leave_is_blocked(tmp_path_factory: pytest.TempPathFactory) -> None:
    machine, function = _without_iommu(tmp_path_factory, no_iommu_mode=True)
    passes.keep(machine, Policy(allow_no_iommu=True))
    outcome = passes.keep(machine)
    assert passes.states(outcome) == {function: "blocked"}
    assert "devices.allow_no_iommu" in passes.report(outcome, function).reason


def test_a_kernel_without_no_iommu_mode_says_so_and_the_old_driver_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    machine, function = _without_iommu(tmp_path_factory, no_iommu_mode=False)
    outcome = passes.keep(machine, Policy(allow_no_iommu=True))
    assert any("enable_unsafe_noiommu_mode" in str(error) for error in outcome.errors)
    assert passes.states(outcome) == {function: "failed"}
    assert machine.driver(function) == "old"


def test_given_back_from_no_iommu_mode_the_old_driver_has_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    machine, function = _without_iommu(tmp_path_factory, no_iommu_mode=True)
    policy = Policy(allow_no_iommu=True)
    passes.keep(machine, policy)
    assert passes.states(passes.unbind(machine, policy=policy)) == {function: "released"}
    assert machine.driver(function) == "old"
    assert machine.host.names("/sys/kernel/iommu_groups") == []
