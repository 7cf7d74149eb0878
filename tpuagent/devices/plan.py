"""Decide what a TPU function is, and which steps bring it where it should be. Pure: no files, no clock, no log."""

from __future__ import annotations

from tpuagent.devices.pci import VFIO_DRIVER, Access, Address, Function, Neighbour, Node, parse_address
from tpuagent.devices.policy import Policy
from tpuagent.devices.records import Record
from tpuagent.devices.steps import AwaitNode, Bind, SetAccess, SetOverride, Step, Unbind, show_access
from tpuagent.errors import DeadlinePassed, InUse, NoIommu, TpuAgentError
from tpuagent.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Drivers under which a neighbour does not touch the hardware, so that the group can still be given to a user.
_PASSIVE_DRIVERS = frozenset({None, "pci-stub", "pcieport"})
_CONTAINER_NODE = "/dev/vfio/vfio"


# What it is -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """`state` is one of ready, unbound, wrong-driver, blocked, in-use, released, stuck, failed."""

    state: str
    reason: str = ""


def judge(function: Function, policy: Policy, access: Access, record: Record) -> Verdict:
    """What a person is told of the function. `record` is what the agent remembers of it."""
    if record.released and not function.bound and not function.release_pending:
        return Verdict("released", "given back by an operator; tpuagent bind takes it again")
    if fault := obstacle(function, policy):
        return Verdict(state_of(fault), fault.why)
    if function.bound:
        return _judge_bound(function, access)
    if record.failure:
        return Verdict(record.failure.state, record.failure.reason)
    return Verdict("wrong-driver", f"bound to {function.driver}") if function.driver else Verdict("unbound")


def _judge_bound(function: Function, access: Access) -> Verdict:
    if others := offenders(function):
        return Verdict("blocked", _shared_with(function, others))
    if not function.has_group_node:
        return Verdict("failed", f"{function.group_node} is not there")
    for node in function.nodes:
        if node.access != access:
            return Verdict("failed", f"{node.path} has {show_access(node.access)}, not {show_access(access)}")
    return Verdict("ready", "in no-IOMMU mode: the chip can write to all memory" if function.no_iommu else "")


def state_of(fault: TpuAgentError) -> str:
    """The state of a function that could not be brought further because of `fault`."""
    if isinstance(fault, NoIommu):
        return "blocked"
    if isinstance(fault, InUse):
        return "in-use"
    return "stuck" if isinstance(fault, DeadlinePassed) else "failed"


def obstacle(function: Function, policy: Policy) -> TpuAgentError | None:
    """What makes it pointless to touch the function now; None when nothing does."""
    action = f"bind {function.address} to {VFIO_DRIVER}"
    if function.release_pending:
        return DeadlinePassed(
            action, "release pending: it is unbound once the process that holds it ends; see: tpuagent devices"
        )
    if function.group is None and not policy.allow_no_iommu:
        return NoIommu(
            action, "no IOMMU group; boot with intel_iommu=on,sm_on, or on a host that has an IOMMU (EINVAL)"
        )
    if function.no_iommu and not policy.allow_no_iommu:
        return NoIommu(
            action, "it is in no-IOMMU mode, which the configuration does not allow (devices.allow_no_iommu)"
        )
    # A TPU beside it leaves its driver when its own turn comes.
    others = [other for other in offenders(function) if not other.tpu or parse_address(other.address) in policy.exclude]
    return NoIommu(action, _shared_with(function, others)) if others else None


def offenders(function: Function) -> list[Neighbour]:
    """The endpoints whose drivers keep the whole group from being given to a user."""
    return [
        other
        for other in function.neighbours
        if other.driver not in _PASSIVE_DRIVERS and not str(other.driver).startswith("vfio-")
    ]


def _shared_with(function: Function, others: Sequence[Neighbour]) -> str:
    named = ", ".join(f"{other.address} ({other.driver})" for other in others)
    return f"IOMMU group {function.group} is shared with {named}, which must leave its driver first"


# What to do -------------------------------------------------------------------------------------------------------


def plan_bind(function: Function, policy: Policy, access: Access) -> tuple[Step, ...]:
    """The steps that make the function usable; none when it is, or when an obstacle stands before it."""
    address = function.address
    if obstacle(function, policy):
        return ()
    opened: tuple[Step, ...] = (AwaitNode(address), SetAccess(address, access))
    if not function.bound:
        # Override first: between unbind and bind the kernel may probe, and must find only vfio-pci.
        released = (Unbind(address, function.driver),) if function.driver else ()
        return (SetOverride(address, VFIO_DRIVER), *released, Bind(address, VFIO_DRIVER), *opened)
    if not function.has_group_node:
        return opened
    return opened[1:] if any(node.access != access for node in function.nodes) else ()


def plan_unbind(function: Function, previous: str | None) -> tuple[Step, ...]:
    """The steps that give the function back to the driver it had before, or to none."""
    address = function.address
    if not function.bound:
        return ()
    if previous is None:
        return (SetOverride(address, None), Unbind(address, VFIO_DRIVER))
    return (SetOverride(address, previous), Unbind(address, VFIO_DRIVER), *_hand_over(address, previous))


def plan_rollback(before: Function, done: Sequence[Step], access: Access) -> tuple[Step, ...]:
    """The steps back to `before`, after `done` and then a failure.

    A function that vfio-pci has taken stays there even if its node could not be opened: only the node is wrong, and
    the next pass tries again.
    """
    address = before.address
    bound_to = [step.driver for step in done if isinstance(step, Bind)]
    if VFIO_DRIVER in bound_to:
        return ()
    taken_back = tuple(Unbind(address, driver) for driver in bound_to)
    if before.driver is None:
        return (SetOverride(address, None), *taken_back)
    if not any(isinstance(step, Unbind) for step in done):
        return (SetOverride(address, VFIO_DRIVER if before.bound else None),)
    if before.bound:
        opened = (AwaitNode(address), SetAccess(address, access))
        return (SetOverride(address, VFIO_DRIVER), *taken_back, Bind(address, VFIO_DRIVER), *opened)
    return (SetOverride(address, before.driver), *taken_back, *_hand_over(address, before.driver))


def _hand_over(address: Address, driver: str) -> tuple[Step, ...]:
    """Bind to a driver of the host's; its override is needed only meanwhile, for a driver that knows no such ids."""
    return (Bind(address, driver), SetOverride(address, None))


def plan_shared_nodes(nodes: Sequence[Node], access: Access) -> tuple[Step, ...]:
    """The steps that open the nodes which belong to no single function.

    The container node is 0666 by the kernel's own default and useless without a group; /dev/iommu comes as 0600.
    """
    steps: list[Step] = []
    for node in nodes:
        wanted = Access(0o666, 0, 0) if node.path == _CONTAINER_NODE else access
        if node.access != wanted:
            steps.append(SetAccess(node.path, wanted))
    return tuple(steps)
