"""Do the laws of a pass hold on any bus?

After a pass a second one has nothing to do; no step ever names what is not a TPU function of the table or is excluded;
a dry run prints the steps that are then taken; and a step that is refused leaves a function with the driver it had.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.devices import passes
from tests.devices.buses import TPUS, Bus, Slot, built, buses
from tests.fakes.machine import Machine
from tests.fakes.uevents import FakeMonitor
from tpuagent.devices import reconcile
from tpuagent.devices.pci import parse_address
from tpuagent.devices.policy import Policy
from tpuagent.devices.report import Pass
from tpuagent.devices.steps import Bind, SetAccess, SetOverride, Step, Unbind

Verb = Callable[..., Pass]
# The kernel of Ubuntu before anything is loaded: with vfio-pci comes iommufd, with a switch and a node of its own.
FRESH_WITH_IOMMUFD = Bus((Slot("v6e", None, "7"),), vfio_modules="available", cdevs=True)
machines = settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])


def _steps(outcome: Pass) -> list[Step]:
    return [*outcome.steps, *(step for report in outcome.reports for step in report.steps)]


@machines
@given(buses)
@example(FRESH_WITH_IOMMUFD)
def test_after_a_pass_a_second_one_has_nothing_to_do(bus: Bus) -> None:
    with built(bus) as (machine, addresses):
        policy = bus.policy(addresses)
        passes.keep(machine, policy)
        assert passes.steps(reconcile.bind(machine.host, policy, None, dry_run=True)) == []
        monitor = FakeMonitor(machine.root)
        assert not passes.keep(machine, policy).changed
        assert monitor.receive() == []
        monitor.close()


@machines
@given(buses)
def test_nothing_but_tpu_functions_of_the_table_is_ever_touched(bus: Bus) -> None:
    with built(bus) as (machine, addresses):
        policy = bus.policy(addresses)
        ours = {
            address
            for address, slot in zip(addresses, bus.slots, strict=True)
            if slot.kind in TPUS and parse_address(address) not in policy.exclude
        }
        before = {address: (machine.driver(address), machine.override(address)) for address in addresses}
        monitor = FakeMonitor(machine.root)
        taken = _steps(passes.keep(machine, policy)) + _steps(passes.unbind(machine, policy=policy))
        named = {str(address) for step in taken if (address := _address(step))}
        assert named <= ours
        assert {event.name for event in monitor.receive() if event.subsystem == "pci"} <= ours
        monitor.close()
        for address in set(addresses) - ours:
            assert (machine.driver(address), machine.override(address)) == before[address]


def _address(step: Step) -> object:
    if isinstance(step, SetAccess):
        return None if isinstance(step.target, str) else step.target
    return getattr(step, "address", None)


@machines
@given(buses)
@example(FRESH_WITH_IOMMUFD)
def test_a_dry_run_prints_exactly_the_steps_that_are_then_taken(bus: Bus) -> None:
    with built(bus) as (machine, addresses):
        policy = bus.policy(addresses)
        for verb in (reconcile.bind, reconcile.unbind, reconcile.bind):
            before = _all_of(machine)
            promised = passes.steps(verb(machine.host, policy, None, dry_run=True))
            assert _all_of(machine) == before
            taken = passes.steps(verb(machine.host, policy, None, limits=passes.LONG))
            if any(step.startswith("load module") for step in promised):
                # That a module brings iommufd along shows only when it is loaded.
                taken = [step for step in taken if "iommufd" not in step and "/dev/iommu" not in step]
            assert taken == promised


def _all_of(machine: Machine) -> dict[str, object]:
    """What a dry run must not change."""
    seen: dict[str, object] = {name: machine.driver(name) for name in machine.host.names("/sys/bus/pci/devices")}
    seen |= {f"{name} override": machine.override(name) for name in machine.host.names("/sys/bus/pci/devices")}
    seen |= {path: machine.mode(f"/dev/vfio/{path}") for path in machine.host.names("/dev/vfio")}
    return seen | {"run": machine.host.names("/run/tpu-agent"), "modules": machine.host.names("/sys/module")}


@machines
@given(
    driver=st.sampled_from([None, "old", "vfio-pci"]),
    verb=st.sampled_from([reconcile.bind, reconcile.unbind]),
    number=st.sampled_from(
        [errno.EINVAL, errno.EAGAIN, errno.ENOMEM, errno.EROFS, errno.EIO, errno.ENODEV, errno.EBUSY]
    ),
    data=st.data(),
)
def test_a_refused_step_leaves_the_function_with_the_driver_it_had(
    driver: str | None, verb: Verb, number: int, data: st.DataObject
) -> None:
    slots = (Slot("v6e", driver, "7"), Slot("v5p", None, "8"))
    with built(Bus(slots)) as (machine, (address, other)):
        if verb is reconcile.unbind:
            passes.keep(machine)
        before = machine.driver(address)
        only = [parse_address(address)]
        planned = [step for step in _steps(verb(machine.host, Policy(), only, dry_run=True)) if _write_of(step)]
        assume(planned)
        path, text = _write_of(data.draw(st.sampled_from(planned))) or ("", "")
        machine.refuse(path, number, text=text)
        outcome = verb(machine.host, Policy(), None, limits=passes.LONG)
        assert passes.report(outcome, address).error
        assert machine.driver(address) == before
        assert passes.report(outcome, other).error is None
        assert verb(machine.host, Policy(), None, limits=passes.LONG).reports[0].error is None


def _write_of(step: Step) -> tuple[str, str] | None:
    """The path and the text that a step writes to sysfs."""
    match step:
        case SetOverride(address, driver):
            return passes.override_path(str(address)), driver or ""
        case Unbind(address, driver):
            return passes.unbind_path(driver), str(address)
        case Bind(address, driver):
            return passes.bind_path(driver), str(address)
        case _:
            return None
