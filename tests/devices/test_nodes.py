"""Who may open the nodes, and what if somebody changes that?"""

from __future__ import annotations

import errno

import pytest

from tests.devices import passes
from tests.fakes.machine import Machine
from tpuagent.deadline import PatientChild
from tpuagent.devices.apply import Hands
from tpuagent.devices.pci import parse_address
from tpuagent.devices.plan import plan_bind
from tpuagent.devices.policy import Policy
from tpuagent.devices.steps import AwaitNode
from tpuagent.devices.sysfs import scan
from tpuagent.errors import NodeFault


def _access(machine: Machine, path: str) -> tuple[int, int, int]:
    found = machine.host.stat(path)
    assert found
    return found.st_mode & 0o7777, found.st_uid, found.st_gid


def test_nodes_get_the_mode_and_the_group_of_the_policy(machine: Machine) -> None:
    function = machine.add_function("v6e")
    assert passes.all_ready(passes.keep(machine, Policy(mode=0o660, group="tpu")))
    assert _access(machine, machine.node(function)) == (0o660, 0, 990)


def test_a_policy_that_changes_is_carried_out(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    outcome = passes.keep(machine, Policy(mode=0o660, group="tpu"))
    assert passes.steps(outcome) == [f"{function} nodes set access to 0660 0:990"]
    assert _access(machine, machine.node(function)) == (0o660, 0, 990)


def test_a_group_of_users_that_does_not_exist_is_told_and_the_mode_applies_all_the_same(machine: Machine) -> None:
    function = machine.add_function("v6e")
    outcome = passes.keep(machine, Policy(mode=0o660, group="chips"))
    assert [type(error) for error in outcome.errors] == [NodeFault]
    assert "chips" in str(outcome.errors[0])
    assert passes.states(outcome) == {function: "ready"}
    assert _access(machine, machine.node(function)) == (0o660, 0, 0)


def test_a_node_that_a_rebind_has_made_anew_is_noticed_and_opened_again(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    machine.rebind(function)
    assert machine.mode(machine.node(function)) == 0o600
    assert "has 0600 0:0, not 0666 0:0" in passes.report(passes.look(machine), function).reason
    outcome = passes.keep(machine)
    assert passes.all_ready(outcome)
    assert passes.steps(outcome) == [f"{function} nodes set access to 0666 0:0"]


def test_a_node_whose_mode_somebody_changed_is_repaired(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    machine.chmod(machine.node(function), 0o640, gid=990)
    assert passes.all_ready(passes.keep(machine))
    assert _access(machine, machine.node(function)) == (0o666, 0, 0)


def test_where_the_kernel_makes_cdevs_they_and_the_iommu_s_node_are_opened_as_well(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    machine = Machine.create(str(tmp_path_factory.mktemp("cdevs")), cdevs=True)
    function = machine.add_function("v6e")
    assert passes.all_ready(passes.keep(machine, Policy(mode=0o660, group="tpu")))
    for path in (machine.node(function), "/dev/vfio/devices/vfio0", "/dev/iommu"):
        assert _access(machine, path) == (0o660, 0, 990)
    machine.chmod("/dev/vfio/devices/vfio0", 0o600)
    assert passes.all_ready(passes.keep(machine))
    assert machine.mode("/dev/vfio/devices/vfio0") == 0o666


def test_where_the_kernel_makes_no_cdevs_none_is_looked_for(machine: Machine) -> None:
    function = machine.add_function("v6e")
    outcome = passes.keep(machine)
    assert passes.all_ready(outcome)
    assert machine.host.names(f"/sys/bus/pci/devices/{function}/vfio-dev") == ["vfio0"]
    assert [node.path for node in outcome.reports[0].function.nodes] == [machine.node(function)]


def test_the_container_node_stays_open_to_all_whatever_the_policy(machine: Machine) -> None:
    machine.add_function("v6e")
    machine.chmod("/dev/vfio/vfio", 0o600, gid=990)
    outcome = passes.keep(machine, Policy(mode=0o660, group="tpu"))
    assert "/dev/vfio/vfio set access to 0666 0:0" in passes.steps(outcome)
    assert _access(machine, "/dev/vfio/vfio") == (0o666, 0, 0)


def test_a_node_that_is_missing_although_the_function_is_bound_is_a_failure(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    node = machine.node(function)
    machine.tree.remove(node)
    outcome = passes.keep(machine, limits=passes.SHORT)
    assert passes.states(outcome) == {function: "failed"}
    assert node in passes.error_of(outcome, function)


def test_the_node_of_a_function_that_somebody_is_unbinding_is_not_waited_for(machine: Machine) -> None:
    function = machine.add_function("v6e")
    passes.keep(machine)
    machine.host.write_attribute("/sys/bus/pci/drivers/vfio-pci/unbind", function)
    with PatientChild(machine.host, passes.SHORT.write_s) as child:
        # Without a NodeFault at the limit: the node goes before the driver does, and the event is to come.
        Hands(machine.host, child, passes.SHORT).apply(AwaitNode(parse_address(function)))
    assert passes.all_ready(passes.keep(machine))


def test_a_plan_that_is_announced_is_done_as_far_as_the_open_node_before_a_step_is_applied(machine: Machine) -> None:
    address = machine.add_function("v6e")
    policy = Policy(mode=0o660, group="tpu")
    (function,) = scan(machine.host, policy.generations)
    with PatientChild(machine.host, passes.SHORT.write_s) as child:
        hands = Hands(machine.host, child, passes.SHORT)
        override, bind, *_ = steps = plan_bind(function, policy, policy.access(990))
        hands.announce([(function, steps)])
        hands.apply(override)
        hands.apply(bind)
    # With both answers taken the child was waited for, and opened the node before it ended.
    assert _access(machine, machine.node(address)) == (0o660, 0, 990)


def test_sysfs_that_is_read_only_is_told_as_such(machine: Machine) -> None:
    function = machine.add_function("v6e")
    machine.refuse("/sys/*", errno.EROFS, times=1000)
    outcome = passes.keep(machine)
    fault = passes.report(outcome, function).error
    assert fault
    assert fault.exit_code == 77
    assert "read-only" in str(fault)
