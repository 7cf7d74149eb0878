"""Turn the kernel's refusal of a step into a sentence with the likely cause and the next step. Pure.

What each errno means here was read in drivers/pci/pci-driver.c, drivers/base/bus.c and drivers/vfio, and seen on 6.1.
"""

from __future__ import annotations

import errno

from tpuagent.devices.steps import Bind, SetAccess, SetOverride, SetParameter, Step, Unbind
from tpuagent.errors import ModuleUnavailable, NodeFault, NotPermitted, RefusedByKernel, TpuAgentError

_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_BIND = {
    errno.ENODEV: "the driver does not accept the function, or the function is gone; look with: lspci -nnk",
    errno.EBUSY: "another driver took it first, or it has virtual functions enabled; look with: lspci -nnk",
    errno.EAGAIN: "the kernel put it off because something it needs is missing; try again, and see: dmesg",
    errno.EINVAL: "the kernel refuses the function: no usable IOMMU group, or no cache-coherent DMA; see: dmesg",
    errno.EEXIST: "the kernel has this device in that group already; see: dmesg",
}
_OVERRIDE = {
    errno.ENOENT: "the function is gone, or the kernel has no driver_override (older than 3.16)",
    errno.EINVAL: "the kernel does not take the name",
}


def explain(step: Step, number: int) -> TpuAgentError:
    """The error for `step`, refused by the kernel with errno `number`."""
    if number in _READ_ONLY and not isinstance(step, SetAccess):
        return NotPermitted(f"carry out '{step}'", _with("not root, or sysfs is read-only here (a container?)", number))
    match step:
        case Bind(_, driver) if number == errno.ENOENT:
            hint = f"driver {driver} is not loaded; try: modprobe {driver}"
            return ModuleUnavailable(_action(step), _with(hint, number))
        case Bind():
            hint = _BIND.get(number, "the driver failed on the function; see: dmesg")
        case Unbind():
            hint = "the driver did not let it go; see: dmesg"
        case SetOverride():
            hint = _OVERRIDE.get(number, "the kernel did not take the driver override; see: dmesg")
        case SetParameter(module, parameter, _) if number == errno.ENOENT:
            return ModuleUnavailable(_action(step), _with(f"this kernel's {module} has no {parameter}", number))
        case SetParameter():
            return ModuleUnavailable(_action(step), _with("the module does not take the value", number))
        case SetAccess():
            return NodeFault(_action(step), _with("the node went away or its file system is read-only", number))
        case _:
            hint = "see: dmesg"
    return RefusedByKernel(_action(step), _with(hint, number))


def not_taken(step: Bind, driver: str | None) -> TpuAgentError:
    """The error for a bind that the kernel reported as done, when the function then has another driver or none."""
    return RefusedByKernel(
        _action(step), f"the kernel reported success, but the driver is {driver or 'none'}; see: dmesg"
    )


def _action(step: Step) -> str:
    match step:
        case Bind(address, driver):
            return f"bind {address} to {driver}"
        case Unbind(address, driver):
            return f"unbind {address} from {driver}"
        case SetOverride(address, driver):
            return f"set the driver override of {address} to {driver or 'none'}"
        case SetAccess(target, _):
            return f"set owner and mode of {target}"
        case _:
            return str(step)


def _with(why: str, number: int) -> str:
    return f"{why} ({errno.errorcode.get(number, number)})"
