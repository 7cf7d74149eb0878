"""What do the tests of this wing say often? Short words for passes, their reports and their steps."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from tests.fakes.machine import Machine
from tpuagent.devices import reconcile
from tpuagent.devices.apply import Limits
from tpuagent.devices.pci import parse_address
from tpuagent.devices.policy import Policy
from tpuagent.devices.report import Pass, Report

# Short, for tests in which a limit is reached; long enough for a machine that is busy with something else.
SHORT = Limits(write_s=1.0, node_s=1.0, lock_s=1.0)
# For tests in which none may be reached.
LONG = Limits(write_s=30.0, node_s=30.0, lock_s=30.0)


def keep(machine: Machine, policy: Policy = Policy(), limits: Limits = LONG) -> Pass:
    """The daemon's pass."""
    return reconcile.keep(machine.host, policy, limits=limits)


def bind(machine: Machine, *addresses: str, policy: Policy = Policy(), limits: Limits = LONG) -> Pass:
    """An operator's bind; of all functions, if none is named."""
    chosen = [parse_address(address) for address in addresses] or None
    return reconcile.bind(machine.host, policy, chosen, limits=limits)


def unbind(machine: Machine, *addresses: str, policy: Policy = Policy(), limits: Limits = LONG) -> Pass:
    """An operator's unbind; of all functions, if none is named."""
    chosen = [parse_address(address) for address in addresses] or None
    return reconcile.unbind(machine.host, policy, chosen, limits=limits)


def look(machine: Machine, policy: Policy = Policy()) -> Pass:
    """What is there."""
    return reconcile.look(machine.host, policy)


def report(outcome: Pass, address: str) -> Report:
    """What a pass says of one function."""
    return next(one for one in outcome.reports if str(one.function.address) == address)


def states(outcome: Pass) -> dict[str, str]:
    """The state of each function."""
    return {str(one.function.address): one.state for one in outcome.reports}


def steps(outcome: Pass) -> list[str]:
    """All steps, as a person reads them."""
    return [str(step) for step in (*outcome.steps, *(step for one in outcome.reports for step in one.steps))]


def error_of(outcome: Pass, address: str) -> str:
    """The message of what went wrong with a function."""
    fault = report(outcome, address).error
    assert fault, f"nothing went wrong with {address}"
    return str(fault)


def bind_path(driver: str) -> str:
    """Where a driver is given a function."""
    return f"/sys/bus/pci/drivers/{driver}/bind"


def unbind_path(driver: str) -> str:
    """Where a driver is told to leave one."""
    return f"/sys/bus/pci/drivers/{driver}/unbind"


def override_path(address: str) -> str:
    """Where a function's driver override is set."""
    return f"/sys/bus/pci/devices/{address}/driver_override"


def all_ready(outcome: Pass) -> bool:
    """Whether there are functions, all are ready, and nothing went wrong."""
    return bool(outcome.reports) and not outcome.errors and _only("ready", (one.state for one in outcome.reports))


def _only(wanted: str, found: Iterable[str]) -> bool:
    return set(found) == {wanted}


@contextlib.contextmanager
def in_background(work: Callable[[], Pass]) -> Iterator[Callable[[], Pass]]:
    """Make a pass beside the block, which ends when the pass has; what is yielded gives its outcome then."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        yield future.result
