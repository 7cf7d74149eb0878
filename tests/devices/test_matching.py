"""Which functions are TPUs, and which ones does the agent leave alone?"""

from __future__ import annotations

import pytest

from tests.devices import passes
from tests.fakes.machine import Machine
from tpuagent.devices import reconcile
from tpuagent.devices.pci import Generation, parse_address, parse_ids
from tpuagent.devices.policy import Policy
from tpuagent.errors import NoSuchFunction, NotATpu


def test_every_generation_is_bound_and_opened(machine: Machine) -> None:
    kinds = ["v5p"] * 4 + ["v6e"] * 2 + ["tpu7x"] * 2
    functions = [machine.add_function(kind) for kind in kinds]
    outcome = passes.keep(machine)
    assert passes.all_ready(outcome)
    assert [one.function.generation.name for one in outcome.reports] == kinds
    assert [machine.driver(address) for address in functions] == ["vfio-pci"] * 8
    assert [machine.mode(machine.node(address)) for address in functions] == [0o666] * 8


def test_a_card_and_a_disk_of_the_same_vendor_are_left_alone_also_behind_a_bridge_of_it(machine: Machine) -> None:
    others = {kind: machine.add_other(kind, driver=f"{kind}-driver") for kind in ("network", "nvme", "v4")}
    bare = machine.add_other("network")
    machine.add_function("v6e")
    assert passes.all_ready(passes.keep(machine))
    assert {kind: machine.driver(address) for kind, address in others.items()} == {
        "network": "network-driver", "nvme": "nvme-driver", "v4": "v4-driver",
    }  # fmt: skip
    assert (machine.driver(bare), machine.override(bare)) == (None, None)


def test_nobody_can_ask_for_what_is_no_tpu(machine: Machine) -> None:
    card = machine.add_other("network", driver="gve")
    tpu = machine.add_function("v6e")
    with pytest.raises(NotATpu, match="1ae0:0042:1ae0:0058"):
        passes.bind(machine, tpu, card)
    with pytest.raises(NotATpu, match=card):
        passes.unbind(machine, card)
    with pytest.raises(NoSuchFunction, match=r"0000:00:1f\.7"):
        passes.bind(machine, tpu, "0000:00:1f.7")
    assert machine.driver(card) == "gve"
    assert machine.driver(tpu) is None


def test_only_nodes_of_tpu_functions_are_counted_and_opened(machine: Machine) -> None:
    card = machine.add_other("network", group="96")
    machine.write(passes.override_path(card), "vfio-pci\n")
    machine.write(passes.bind_path("vfio-pci"), card)
    tpus = [machine.add_function("v6e", group=group) for group in ("0", "1")]
    outcome = passes.keep(machine)
    assert machine.mode("/dev/vfio/96") == 0o600
    assert [machine.mode(f"/dev/vfio/{group}") for group in ("0", "1")] == [0o666, 0o666]
    assert [str(one.function.address) for one in outcome.reports] == tpus


def test_accel_nodes_of_the_vendor_are_listed_and_not_those_of_others(machine: Machine) -> None:
    machine.add_driver("google-accel", "v4", makes_accel_nodes=True)
    machine.add_driver("other-accel", "bridge", makes_accel_nodes=True)
    for kind in ("bridge", "v4"):
        machine.plug(kind)
    outcome = passes.keep(machine)
    assert outcome.reports == ()
    assert outcome.accel_nodes == ("/dev/accel1",)
    assert not outcome.changed


@pytest.mark.parametrize("vfio_modules", ["loaded", "available", "absent"])
def test_on_a_host_without_a_tpu_nothing_is_changed(
    tmp_path_factory: pytest.TempPathFactory, vfio_modules: str
) -> None:
    machine = Machine.create(str(tmp_path_factory.mktemp("bare")), vfio_modules=vfio_modules)  # type: ignore[arg-type]
    machine.add_other("network", driver="gve")
    modules = machine.host.names("/sys/module")
    outcome = passes.keep(machine)
    assert (outcome.reports, outcome.errors, outcome.changed) == ((), (), False)
    assert machine.host.names("/sys/module") == modules
    switch = machine.host.read("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts")
    assert switch in {None, "N"}


def test_a_function_that_goes_between_the_listing_and_the_look_is_passed_over(machine: Machine) -> None:
    first = machine.add_function("v6e")
    machine.leave_ghost("0000:00:05.0")
    last = machine.add_function("v6e", address="0000:00:06.0")
    assert passes.states(passes.keep(machine)) == {first: "ready", last: "ready"}


def test_an_excluded_function_is_left_alone_and_not_reported_as_one_of_the_host_s(machine: Machine) -> None:
    left, taken = machine.add_function("v6e", driver="old"), machine.add_function("v6e")
    policy = Policy(exclude=frozenset({parse_address(left)}))
    outcome = passes.keep(machine, policy)
    assert passes.states(outcome) == {taken: "ready"}
    assert outcome.excluded == (parse_address(left),)
    assert (machine.driver(left), machine.override(left)) == ("old", None)
    with pytest.raises(NotATpu, match=r"devices\.exclude"):
        passes.bind(machine, left, policy=policy)


def test_a_generation_of_the_configuration_counts_like_a_built_in_one(machine: Machine) -> None:
    function = machine.add_function("v4", driver="old")
    assert passes.keep(machine).reports == ()
    added = Generation("v4", parse_ids("1ae0:005e:1ae0:0000"))
    outcome = passes.keep(machine, Policy(generations=(*Policy().generations, added)))
    assert passes.states(outcome) == {function: "ready"}
    assert outcome.reports[0].function.generation.name == "v4"


def test_a_look_changes_nothing(machine: Machine) -> None:
    function = machine.add_function("v6e", driver="old")
    outcome = reconcile.look(machine.host, Policy())
    assert passes.states(outcome) == {function: "wrong-driver"}
    assert machine.driver(function) == "old"
    assert machine.host.names("/run") == []
