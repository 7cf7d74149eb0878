"""How is one step carried out and verified? Hands: writes the host."""

from __future__ import annotations

import errno
import time
from itertools import takewhile

from tpuagent.deadline import Chain, PatientChild, Write
from tpuagent.devices import sysfs
from tpuagent.devices.pci import Address, Function, Node
from tpuagent.devices.steps import AwaitNode, Bind, LoadModule, SetAccess, SetOverride, SetParameter, Step, Unbind
from tpuagent.errors import ModuleUnavailable, NodeFault
from tpuagent.host import GONE, Host
from tpuagent.values import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NODE_RETRY_S = 0.01


@dataclass(frozen=True)
class Limits:
    """How long each wait may last, in seconds. `idle_s`: how long the daemon keeps a child that has nothing to do."""

    write_s: float = 5.0
    node_s: float = 2.0
    lock_s: float = 30.0
    idle_s: float = 5.0


class Hands:
    """Carries out steps, each with the errors of its kind."""

    def __init__(self, host: Host, child: PatientChild, limits: Limits) -> None:
        self._host = host
        self._child = child
        self._limits = limits
        self._awaited: dict[Address, list[Node]] = {}

    def announce(self, plans: Sequence[tuple[Function, Sequence[Step]]]) -> None:
        """Let what each plan begins with be done now; `apply` then takes the results one by one.

        That are its writes, and then the mode of the group's node, which is there as soon as the function is bound.
        """
        self._child.announce(*(_chain(function, steps) for function, steps in plans))

    def apply(self, step: Step) -> None:
        """Carry out one step and verify it. Raises a TpuAgentError that says what the kernel answered."""
        try:
            match step:
                case LoadModule(module):
                    self._host.load_module(module)
                case SetParameter():
                    self._set_parameter(step)
                case SetOverride():
                    self._child.write(*_write_of(step))
                case Unbind():
                    self._unbind(step)
                case Bind():
                    self._bind(step)
                case AwaitNode(address):
                    self._await_node(address)
                case SetAccess():
                    self._set_access(step)
        except OSError as fault:
            from tpuagent.devices.reasons import explain  # no command that has its way needs it

            raise explain(step, fault.errno or errno.EIO) from fault

    def _set_access(self, step: SetAccess) -> None:
        if isinstance(step.target, str):
            nodes = self._look_at_nodes([step.target])
        else:  # right after its node was awaited they have just been looked at
            nodes = self._awaited.pop(step.target, []) or self._look_at_nodes(sysfs.node_paths(self._host, step.target))
        for node in nodes:
            if node.access != step.access:  # the child may have been here before
                self._host.set_access(node.path, step.access.mode, step.access.uid, step.access.gid)

    def _look_at_nodes(self, paths: Sequence[str]) -> list[Node]:
        return [node for path in paths if (node := sysfs.look_at_node(self._host, path))]

    def _set_parameter(self, step: SetParameter) -> None:
        path = f"/sys/module/{step.module.replace('-', '_')}/parameters/{step.parameter}"
        self._host.write_attribute(path, step.value)
        if (now := self._host.read(path)) != step.value:
            raise ModuleUnavailable(str(step), f"it still reads {now}")

    def _unbind(self, step: Unbind) -> None:
        try:
            self._child.write(*_write_of(step))
        except OSError as fault:
            if fault.errno not in GONE or sysfs.driver_of(self._host, step.address) == step.driver:
                raise  # otherwise somebody else unbound it first, which is what was wanted

    def _bind(self, step: Bind) -> None:
        try:
            self._child.write(*_write_of(step))
        except OSError as fault:
            if fault.errno != errno.EBUSY or sysfs.driver_of(self._host, step.address) != step.driver:
                raise  # otherwise the kernel or somebody else bound it first
        if (driver := sysfs.driver_of(self._host, step.address)) != step.driver:
            from tpuagent.devices.reasons import not_taken

            raise not_taken(step, driver)

    def _await_node(self, address: Address) -> None:
        end = time.monotonic() + self._limits.node_s
        while True:
            paths = sysfs.node_paths(self._host, address)
            nodes = self._look_at_nodes(paths)
            if nodes and nodes[0].path == paths[0]:  # the group's
                break
            if sysfs.driver_of(self._host, address) is None:
                return  # somebody is unbinding it: the node goes before the driver does, and the event is to come
            if time.monotonic() >= end:
                raise NodeFault(
                    f"open {address} to users",
                    f"{paths[0] if paths else 'its node'} did not appear within {self._limits.node_s:g} s; see: dmesg",
                )
            time.sleep(NODE_RETRY_S)
        self._awaited[address] = nodes


def _chain(function: Function, steps: Sequence[Step]) -> Chain:
    writes = [_write_of(step) for step in takewhile(lambda step: isinstance(step, SetOverride | Unbind | Bind), steps)]
    access = next((step.access for step in steps if isinstance(step, SetAccess)), None)
    if access is None or function.group_node is None:
        return writes, None
    return writes, (function.group_node, access.mode, access.uid, access.gid)


def _write_of(step: Step) -> Write:
    """What a step writes, and where."""
    match step:
        case SetOverride(address, driver):
            # "\n", not "": sysfs drops an empty write, and the override would stay.
            return f"{sysfs.DEVICES}/{address}/driver_override", f"{driver or ''}\n"
        case Unbind(address, driver):
            return f"{sysfs.DRIVERS}/{driver}/unbind", str(address)
        case Bind(address, driver):
            return f"{sysfs.DRIVERS}/{driver}/bind", str(address)
        case _:
            raise TypeError(step)
