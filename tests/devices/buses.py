"""Which machines do the laws hold on? Random ones, and the machine of each."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.fakes.machine import Machine, ModuleState
from tpuagent.devices.pci import parse_address
from tpuagent.devices.policy import Policy

TPUS = ("v5p", "v6e", "tpu7x")
OTHERS = ("network", "nvme", "bridge", "v4")


@dataclass(frozen=True)
class Slot:
    """One function: its kind, the driver that has it at first, and its group."""

    kind: str
    driver: str | None
    group: str


@dataclass(frozen=True)
class Bus:
    """A machine and the policy for it. `excluded`: the numbers of slots that the policy leaves alone."""

    slots: tuple[Slot, ...] = ()
    vfio_modules: ModuleState = "loaded"
    iommu: bool = True
    cdevs: bool = False
    no_iommu_mode: bool = False
    architecture: str = "x86_64"
    mode: int = 0o666
    group: str = "root"
    unsafe_interrupts: bool | None = None
    excluded: frozenset[int] = frozenset()

    def policy(self, addresses: list[str]) -> Policy:
        """The policy, for functions at these addresses."""
        return Policy(
            mode=self.mode,
            group=self.group,
            exclude=frozenset(parse_address(addresses[number]) for number in self.excluded if number < len(addresses)),
            allow_no_iommu=self.no_iommu_mode,
            unsafe_interrupts=self.unsafe_interrupts,
        )


_DRIVERS = st.sampled_from([None, None, "old", "older", "vfio-pci"])
slots = st.builds(
    Slot, kind=st.sampled_from(TPUS + OTHERS), driver=_DRIVERS, group=st.sampled_from(["7", "8", "9", "96"])
)
buses = st.builds(
    Bus,
    slots=st.lists(slots, max_size=6).map(tuple),
    vfio_modules=st.sampled_from(["loaded", "loaded", "available", "builtin"]),
    iommu=st.sampled_from([True, True, True, False]),
    cdevs=st.booleans(),
    no_iommu_mode=st.booleans(),
    architecture=st.sampled_from(["x86_64", "aarch64"]),
    mode=st.sampled_from([0o666, 0o660, 0o600]),
    group=st.sampled_from(["root", "tpu", "990"]),
    unsafe_interrupts=st.sampled_from([None, True, False]),
    excluded=st.frozensets(st.integers(0, 5), max_size=2),
)


@contextlib.contextmanager
def built(bus: Bus) -> Iterator[tuple[Machine, list[str]]]:
    """The machine, and the addresses of its functions in the order of the slots."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine.create(
            folder,
            iommu=bus.iommu,
            vfio_modules=bus.vfio_modules,
            cdevs=bus.cdevs,
            no_iommu_mode=bus.no_iommu_mode,
            architecture=bus.architecture,
        )
        yield machine, [_add(machine, slot) for slot in bus.slots]


def _add(machine: Machine, slot: Slot) -> str:
    address = machine.add_function(slot.kind, group=slot.group)
    driver = "old" if slot.driver == "vfio-pci" and not _takes(machine, slot.kind) else slot.driver
    if driver:
        if driver != "vfio-pci":
            machine.add_driver(driver)
        machine.write(f"/sys/bus/pci/devices/{address}/driver_override", f"{driver}\n")
        machine.write(f"/sys/bus/pci/drivers/{driver}/bind", address)
        if driver != "vfio-pci":
            machine.write(f"/sys/bus/pci/devices/{address}/driver_override", "\n")
    return address


def _takes(machine: Machine, kind: str) -> bool:
    """Whether vfio-pci is there and would take a function of this kind."""
    return kind != "bridge" and "vfio-pci" in machine.drivers() and machine.has_iommu()
