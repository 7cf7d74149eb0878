"""Does every refusal of the kernel become a sentence with a cause, a next step and its errno?"""

from __future__ import annotations

import errno
import re

import pytest

from tpuagent.devices.pci import Access, parse_address
from tpuagent.devices.reasons import explain
from tpuagent.devices.steps import AwaitNode, Bind, LoadModule, SetAccess, SetOverride, SetParameter, Step, Unbind
from tpuagent.errors import ModuleUnavailable, NodeFault, NotPermitted, RefusedByKernel, TpuAgentError

ADDRESS = parse_address("0000:00:04.0")
OPEN = Access(0o666, 0, 0)
STEPS: tuple[Step, ...] = (
    SetOverride(ADDRESS, "vfio-pci"),
    SetOverride(ADDRESS, None),
    Unbind(ADDRESS, "old"),
    Bind(ADDRESS, "vfio-pci"),
    AwaitNode(ADDRESS),
    SetAccess(ADDRESS, OPEN),
    SetAccess("/dev/vfio/vfio", OPEN),
    SetParameter("vfio_iommu_type1", "allow_unsafe_interrupts", "Y"),
    LoadModule("vfio-pci"),
)


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_every_errno_of_a_step_is_one_plain_sentence(step: Step) -> None:
    for number in [*errno.errorcode, 4095]:
        fault = explain(step, number)
        assert isinstance(fault, TpuAgentError)
        assert re.fullmatch(r"cannot [^\n{}]+: [a-z][^\n{}]+ \([A-Z0-9]+\)", str(fault))
        assert str(fault).endswith(f"({errno.errorcode.get(number, number)})")
        assert "None" not in str(fault)


@pytest.mark.parametrize(
    ("step", "number", "kind", "hint"),
    [
        (STEPS[3], errno.ENOENT, ModuleUnavailable, "modprobe vfio-pci"),
        (STEPS[3], errno.ENODEV, RefusedByKernel, "does not accept the function, or the function is gone"),
        (STEPS[3], errno.EBUSY, RefusedByKernel, "another driver took it first"),
        (STEPS[3], errno.EAGAIN, RefusedByKernel, "try again"),
        (STEPS[3], errno.EINVAL, RefusedByKernel, "IOMMU group"),
        (STEPS[3], errno.EACCES, NotPermitted, "read-only"),
        (STEPS[2], errno.EROFS, NotPermitted, "read-only"),
        (STEPS[2], errno.EIO, RefusedByKernel, "dmesg"),
        (STEPS[0], errno.EINVAL, RefusedByKernel, "does not take the name"),
        (STEPS[0], errno.ENOENT, RefusedByKernel, "gone"),
        (STEPS[5], errno.EROFS, NodeFault, "read-only"),
        (STEPS[6], errno.ENOENT, NodeFault, "/dev/vfio/vfio"),
        (STEPS[7], errno.ENOENT, ModuleUnavailable, "has no allow_unsafe_interrupts"),
        (STEPS[7], errno.EINVAL, ModuleUnavailable, "does not take the value"),
    ],
)
def test_the_likely_cause_is_named(step: Step, number: int, kind: type[TpuAgentError], hint: str) -> None:
    fault = explain(step, number)
    assert type(fault) is kind
    assert hint in str(fault)
