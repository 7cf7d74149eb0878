"""Look, plan, change, look again: one device pass, the same for the daemon and the command, under one lock."""

from __future__ import annotations

from tpuagent.deadline import PatientChild, reap
from tpuagent.devices.apply import Limits
from tpuagent.devices.pci import Address, Function
from tpuagent.devices.policy import Policy
from tpuagent.devices.report import Pass
from tpuagent.devices.work import Work
from tpuagent.host import Host

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LOCK = "/run/tpu-agent/devices.lock"


def look(host: Host, policy: Policy) -> Pass:
    """What is there, with the holders of each function as far as the caller may see them. Changes nothing."""
    with PatientChild(host, Limits().write_s) as child:
        work = Work(host, policy, child, Limits(), dry_run=True)
        list(work.look())
        return work.finish(with_holders=True)


def keep(
    host: Host,
    policy: Policy,
    *,
    retry: bool = True,
    limits: Limits = Limits(),
    child: PatientChild | None = None,
) -> Pass:
    """The daemon's pass: every function usable, but for those that an operator has released.

    Without `retry`, what failed at the last attempt is only looked at: undoing a failed attempt causes events, and an
    attempt at each event would never end. `child`: one that serves many passes, since to make one takes long.
    """
    if child is None:
        with PatientChild(host, limits.write_s) as own:
            return keep(host, policy, retry=retry, limits=limits, child=own)
    reap()
    with host.lock(LOCK, limits.lock_s):
        work = Work(host, policy, child, limits)
        return work.bind(work.look(), lambda function: work.wants(function, retry=retry)).finish()


def bind(
    host: Host, policy: Policy, addresses: Sequence[Address] | None, *, dry_run: bool = False, limits: Limits = Limits()
) -> Pass:
    """An operator's bind: these functions, or all, made usable and no longer left alone."""
    return _operate(host, policy, addresses, Work.take, dry_run=dry_run, limits=limits)


def unbind(
    host: Host, policy: Policy, addresses: Sequence[Address] | None, *, dry_run: bool = False, limits: Limits = Limits()
) -> Pass:
    """An operator's unbind: these functions, or all, given back to their previous drivers and then left alone."""
    return _operate(host, policy, addresses, Work.give_back, dry_run=dry_run, limits=limits)


def _operate(
    host: Host,
    policy: Policy,
    addresses: Sequence[Address] | None,
    verb: Callable[[Work, Iterable[Function]], Work],
    *,
    dry_run: bool,
    limits: Limits,
) -> Pass:
    with PatientChild(host, limits.write_s) as child:
        if dry_run:
            work = Work(host, policy, child, limits, dry_run=True)
            return verb(work, work.choose(addresses)).finish(addresses)
        host.require_root("change a function's driver")
        with host.lock(LOCK, limits.lock_s):
            work = Work(host, policy, child, limits)
            return verb(work, work.choose(addresses)).finish(addresses)
