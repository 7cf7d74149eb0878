"""One device pass under way: what was seen at its start, what has been done since, and what went wrong."""

from __future__ import annotations

from itertools import chain

from tpuagent.deadline import PatientChild
from tpuagent.devices import sysfs
from tpuagent.devices.apply import Hands, Limits
from tpuagent.devices.modules import plan_modules, plan_parameters
from tpuagent.devices.pci import VFIO_DRIVER, Access, Address, Function
from tpuagent.devices.plan import judge, obstacle, plan_bind, plan_rollback, plan_shared_nodes, plan_unbind, state_of
from tpuagent.devices.policy import Policy
from tpuagent.devices.records import Failure, Record, parse_records, render_records
from tpuagent.devices.report import Pass, Report
from tpuagent.devices.steps import Bind, Step, Unbind
from tpuagent.errors import (
    DeadlinePassed,
    InUse,
    ModuleUnavailable,
    NodeFault,
    NoSuchFunction,
    NotATpu,
    TpuAgentError,
)
from tpuagent.host import Host
from tpuagent.values import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tpuagent.devices.holders import Holder

RECORDS = "/run/tpu-agent/devices.json"
# So many that what is told the child fits into its pipe, whatever it is doing.
MOST_ANNOUNCED = 64
NO_RECORD = Record()


class Work:
    """A pass under way: what was seen at its start, what has been done, and what went wrong."""

    def __init__(
        self, host: Host, policy: Policy, child: PatientChild, limits: Limits, *, dry_run: bool = False
    ) -> None:
        self._host = host
        self._policy = policy
        self._hands = Hands(host, child, limits)
        self._dry_run = dry_run
        self._access, self._errors = _access(host, policy)
        self._remembered = parse_records(host.read(RECORDS))
        self._records = dict(self._remembered)
        self._excluded: tuple[Address, ...] = ()
        self._functions: list[Function] = []
        self._announced: set[Address] = set()
        self._steps: list[Step] = []
        self._done: dict[Address, tuple[Step, ...]] = {}
        self._faults: dict[Address, TpuAgentError] = {}
        self._held: dict[Address, tuple[Holder, ...]] = {}

    def record(self, function: Function) -> Record:
        """What is remembered of a function."""
        return self._records.get(function.address, NO_RECORD)

    def look(self) -> Iterator[Function]:
        """The functions that are not excluded, each as soon as it has been looked at. `finish` is to know them all."""
        found = []
        for function in sysfs.look_at_each(self._host, self._policy.generations):
            found.append(function)
            if function.address not in self._policy.exclude:
                yield function
        found.sort(key=lambda function: function.address)
        self._excluded = tuple(function.address for function in found if function.address in self._policy.exclude)
        self._functions = [function for function in found if function.address not in self._policy.exclude]
        # Only of what is there: a function plugged in later at the same address is another one.
        there = {function.address for function in found}
        self._records = {address: record for address, record in self._records.items() if address in there}

    def choose(self, addresses: Sequence[Address] | None) -> Iterable[Function]:
        """The functions that an operator named; all when none is. Raises before anything is touched."""
        if addresses is None:
            return self.look()
        everything = list(self.look())
        for address in addresses:
            if address in self._policy.exclude:
                raise NotATpu(f"touch {address}", "the configuration excludes it (devices.exclude)")
            sysfs.require_tpu(self._host, address, self._policy.generations)
        chosen = [function for function in everything if function.address in addresses]
        if missing := set(addresses) - {function.address for function in chosen}:
            raise NoSuchFunction(f"find {min(missing)}", "it has just gone away; look again with: tpuagent devices")
        return chosen

    def wants(self, function: Function, *, retry: bool) -> bool:
        """Whether the daemon brings a function to vfio-pci, or repairs it there."""
        record = self.record(function)
        return function.bound or not (record.released or (record.failure and not retry))

    # Verbs --------------------------------------------------------------------------------------------------------

    def take(self, functions: Iterable[Function]) -> Work:
        """Bind for an operator: not left alone any longer."""

        def wanted(function: Function) -> bool:
            self._remember(function, released=False)
            return True

        return self.bind(functions, wanted)

    def bind(self, functions: Iterable[Function], wanted: Callable[[Function], bool] = lambda _: True) -> Work:
        """Make those of the functions usable that are wanted; the first is begun before the last is looked at."""
        plans: list[tuple[Function, tuple[Step, ...]]] = []
        functions = iter(functions)
        first = next(functions, None)
        if first is None:  # on a host without a TPU no module is loaded and no parameter weakened
            return self
        # Without an IOMMU the kernel binds nothing before a parameter says that it may.
        waits = self._policy.allow_no_iommu or not sysfs.driver_is_there(self._host, VFIO_DRIVER)
        missing = self._prepare_modules() if waits else None
        for function in chain([first], functions):
            if wanted(function):
                steps = plan_bind(function, self._policy, self._access)
                plans.append((function, steps))
                if not missing and not _takes_away(steps):  # which asks first who holds it
                    self._announce([(function, steps)])
        if not waits:
            self._prepare_modules()  # while the child binds
        self._find_holders(function for function, steps in plans if _takes_away(steps))
        for function, steps in plans:
            if fault := obstacle(function, self._policy):
                self._faults[function.address] = fault
            elif missing and any(isinstance(step, Bind) for step in steps):
                self._faults[function.address] = missing
            elif steps and function.driver and not function.bound:
                self._remember(function, previous=function.driver)
        self._carry_out(plans, f"bind {{}} to {VFIO_DRIVER}")
        self._apply_shared(plan_shared_nodes(sysfs.shared_nodes(self._host), self._access))
        return self

    def _prepare_modules(self) -> TpuAgentError | None:
        """Why no function can be bound; then none is taken from the driver that it has."""
        modules = sysfs.modules(self._host)
        if missing := plan_modules(modules):
            self._apply_shared(missing)
            modules = sysfs.modules(self._host)  # one brings others along
        self._apply_shared(plan_parameters(modules, self._policy, self._host.machine()))
        faults = (error for error in self._errors if isinstance(error, ModuleUnavailable))
        return None if sysfs.driver_is_there(self._host, VFIO_DRIVER) else next(faults, None)

    def give_back(self, functions: Iterable[Function]) -> Work:
        """Unbind for an operator: back to the previous driver, and left alone from now on."""
        functions = list(functions)
        self._find_holders(function for function in functions if function.bound)
        for function in functions:
            if function.release_pending and (pending := obstacle(function, self._policy)):
                self._faults[function.address] = pending
        plans = [(function, plan_unbind(function, self.record(function).previous)) for function in functions]
        self._carry_out(plans, f"unbind {{}} from {VFIO_DRIVER}")
        for function in functions:
            fault = self._faults.get(function.address)
            # An unbind that waits in the kernel cannot be called back: what the operator wanted will come.
            if fault is None or isinstance(fault, DeadlinePassed):
                self._remember(function, released=True)
        return self

    # Parts --------------------------------------------------------------------------------------------------------

    def _remember(self, function: Function, **what: object) -> None:
        before = self.record(function)
        record = replace(before, **what)  # type: ignore[arg-type]
        if record != before:
            self._records[function.address] = record
            self._save()

    def _save(self) -> None:
        """Before the next step and not at the end: an agent that is killed in mid-pass has told its successor."""
        if self._dry_run or self._records == self._remembered:
            return
        try:
            if any(record != NO_RECORD for record in self._records.values()):
                self._host.replace(RECORDS, render_records(self._records))
            else:
                self._host.remove(RECORDS)
        except OSError as fault:  # a full /run is no reason to leave the functions unusable
            self._errors.append(TpuAgentError(f"write {RECORDS}", fault.strerror or str(fault)))
        self._remembered = dict(self._records)

    def _find_holders(self, functions: Iterable[Function]) -> None:
        numbers = {function.address: sysfs.device_numbers(self._host, function) for function in functions}
        if numbers:
            from tpuagent.devices.holders import find_holders  # few passes take a function from anybody

            self._held.update(find_holders(self._host, numbers))

    def _carry_out(self, plans: Sequence[tuple[Function, tuple[Step, ...]]], action: str) -> None:
        """Take the steps of each function in order, unless it has a fault already or a process holds it."""
        for function, steps in plans:
            if _takes_away(steps) and (holders := self._held.get(function.address)):
                named = ", ".join(map(str, holders))
                why = f"process {named} holds it; end that process first, or look with: tpuagent devices (EBUSY)"
                self._faults.setdefault(function.address, InUse(action.format(function.address), why))
        chosen = [(function, steps) for function, steps in plans if function.address not in self._faults]
        if self._dry_run:
            self._done.update({function.address: steps for function, steps in chosen})
            return
        self._announce(chosen)
        for function, steps in chosen:
            self._done[function.address] = self._take_steps(function, steps)

    def _announce(self, plans: Sequence[tuple[Function, tuple[Step, ...]]]) -> None:
        """Let the child begin with these."""
        new = [plan for plan in plans if plan[0].address not in self._announced]
        new = new[: MOST_ANNOUNCED - len(self._announced)]
        if not self._dry_run:
            self._announced.update(function.address for function, _ in new)
            self._hands.announce(new)

    def _take_steps(self, function: Function, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The steps that were taken. After a failed one the function is brought back to the driver it had."""
        done: list[Step] = []
        try:
            for step in steps:
                done.append(step)
                self._hands.apply(step)
        except TpuAgentError as fault:
            self._faults[function.address] = self._roll_back(function, done[:-1], fault)
        return tuple(done)

    def _roll_back(self, before: Function, done: list[Step], fault: TpuAgentError) -> TpuAgentError:
        """Undo, and return the fault with what could not be undone."""
        if isinstance(fault, DeadlinePassed):  # the function's lock is taken: every further write would wait as well
            return fault
        try:
            for step in plan_rollback(before, done, self._access):
                self._hands.apply(step)
        except TpuAgentError as second:
            fault = type(fault)(fault.action, f"{fault.why}; and then could not {second.action}: {second.why}")
        return fault

    def _apply_shared(self, steps: tuple[Step, ...]) -> None:
        for step in steps:
            self._steps.append(step)
            if self._dry_run:
                continue
            try:
                self._hands.apply(step)
            except TpuAgentError as fault:
                self._errors.append(fault)

    def finish(self, addresses: Sequence[Address] | None = None, *, with_holders: bool = False) -> Pass:
        """Look again and report, on these functions or on all."""
        seen = self._functions
        if any(self._done.values()) and not self._dry_run:
            seen = [
                function
                for function in sysfs.scan(self._host, self._policy.generations)
                if function.address not in self._policy.exclude
            ]
        if with_holders:
            self._find_holders(seen)
        chosen = [function for function in seen if addresses is None or function.address in addresses]
        reports = tuple(self._report(function) for function in chosen)
        self._save()
        accel_nodes = sysfs.accel_nodes(self._host)
        return Pass(reports, self._excluded, accel_nodes, tuple(self._steps), tuple(self._errors))

    def _report(self, function: Function) -> Report:
        address = function.address
        fault = self._faults.get(address)
        if address in self._done or fault:
            failure = Failure(state_of(fault), fault.why) if fault else None
            self._remember(function, failure=failure)
        verdict = judge(function, self._policy, self._access, self.record(function))
        held, done = self._held.get(address, ()), self._done.get(address, ())
        return Report(function, verdict.state, verdict.reason, held, done, fault)


def _takes_away(steps: Iterable[Step]) -> bool:
    return any(isinstance(step, Unbind) for step in steps)


def _access(host: Host, policy: Policy) -> tuple[Access, list[TpuAgentError]]:
    """What nodes are given. A group of users that does not exist must not keep the mode from being set."""
    gid = host.group_id(policy.group)
    if gid is not None:
        return policy.access(gid), []
    why = (
        f"there is no group {policy.group} (devices.group), so they are root's;"
        f" make it with: groupadd --system {policy.group}"
    )
    return policy.access(0), [NodeFault("give nodes to their group", why)]
