"""What a virtual machine consists of, as a value, and the QEMU command line that says so. Pure: starts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .recipe import RUNNER_PORT

ROOT_SLOT, RUNNER_SLOT, FIRST_PORT_SLOT, FIRST_FUNCTION_SLOT, LAST_FUNCTION_SLOT = 0x02, 0x03, 0x04, 0x08, 0x1E
EIGHT_CHIPS = ("v5p",) * 4 + ("v6e",) * 2 + ("tpu7x",) * 2


@dataclass(frozen=True)
class Machine:
    """`functions` are kinds or ids of `tpudev`; the first gets address 0000:00:08.0, the next 0000:00:09.0, and so on.

    `google` makes the firmware say what it says on a Google Cloud VM. `disks` are raw images, /dev/vdb and on;
    what a guest writes to any disk is gone when it ends. `network` adds a card that reaches nothing.
    """

    functions: tuple[str, ...] = EIGHT_CHIPS
    iommu: bool = True
    google: bool = True
    kernel_arguments: tuple[str, ...] = ()
    memory_mib: int = 2048
    processors: int = 2
    disks: tuple[Path, ...] = ()
    hot_plug_ports: int = 2
    network: bool = False

    def address(self, number: int) -> str:
        """The PCI address of `functions[number]`."""
        return f"0000:00:{FIRST_FUNCTION_SLOT + number:02x}.0"

    def port_address(self, number: int) -> str:
        """The PCI address of a hot-plug port."""
        return f"0000:00:{FIRST_PORT_SLOT + number:02x}.0"


@dataclass(frozen=True)
class Places:
    """Paths as QEMU sees them: the disks, the folder of this run with its sockets, and what to boot without GRUB.

    `direct` is a kernel and an initrd, or empty: then the firmware boots from the root disk.
    """

    direct: tuple[str, ...]
    root: str
    run: str
    disks: tuple[str, ...]


def socket_name(identity: str) -> str:
    return f"{identity}.sock"


def function_device(identity: str, run: str, **where: str) -> Mapping[str, object]:
    """The QEMU device for a function that a `tpudev` serves."""
    socket = {"type": "unix", "path": f"{run}/{socket_name(identity)}"}
    return {"driver": "vfio-user-pci", "id": identity, "socket": socket, **where}


def render_arguments(machine: Machine, places: Places, console: str, runner_fd: int, qmp_fd: int) -> list[str]:
    """QEMU's arguments. `console` is a chardev with id `console`; the two descriptors are connected sockets."""
    memory = f"{machine.memory_mib}M"
    arguments = [
        "-nodefaults", "-no-user-config", "-display", "none", "-cpu", "max,svm=off", "-smp", str(machine.processors),
        "-accel", "tcg,thread=multi",
        # vfio-user needs memory that another process could map.
        "-m", memory, "-object", f"memory-backend-memfd,id=memory,size={memory},share=on",
        "-machine", "q35,kernel-irqchip=split,memory-backend=memory,sata=off,smbus=off,i8042=off",
        "-chardev", console, "-serial", "chardev:console",
        "-chardev", f"socket,id=qmp,fd={qmp_fd}", "-mon", "chardev=qmp,mode=control",
        "-chardev", f"socket,id=runner,fd={runner_fd}",
        "-device", f"virtio-serial-pci,addr={RUNNER_SLOT:#x}",
        "-device", f"virtserialport,chardev=runner,name={RUNNER_PORT}",
    ]  # fmt: skip
    if places.direct:
        kernel, initrd = places.direct
        arguments += ["-kernel", kernel, "-initrd", initrd, "-append", kernel_command_line(machine)]
    if machine.iommu:
        # Without caching-mode QEMU cannot see the guest's mappings, and every DMA mapping of a function fails.
        arguments += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
    if machine.google:
        arguments += ["-smbios", "type=1,manufacturer=Google,product=Google Compute Engine"]
    arguments += ["-device", "virtio-net-pci"] if machine.network else ["-nic", "none"]
    return arguments + list(_disks(places)) + list(_functions(machine, places))


def kernel_command_line(machine: Machine) -> str:
    fixed = ["root=/dev/vda", "rootfstype=ext4", "rw", "console=ttyS0", "quiet", "fsck.mode=skip", "net.ifnames=0"]
    # With interrupt remapping the kernel measures whether the timer ticks, and panics where an emulator lags.
    fixed.append("no_timer_check")
    iommu = ["intel_iommu=on,sm_on"] if machine.iommu else []
    return " ".join([*fixed, *iommu, *machine.kernel_arguments])


def _disks(places: Places) -> Iterator[str]:
    for number, path in enumerate((places.root, *places.disks)):
        yield from ("-drive", f"if=none,id=disk{number},file={path},format=raw,snapshot=on,cache=unsafe")
        where = f",addr={ROOT_SLOT:#x}" if number == 0 else ""
        yield from ("-device", f"virtio-blk-pci,drive=disk{number}{where}")


def _functions(machine: Machine, places: Places) -> Iterator[str]:
    for number in range(machine.hot_plug_ports):
        slot = FIRST_PORT_SLOT + number
        yield from ("-device", f"pcie-root-port,id=port{number},chassis={number + 1},slot={number + 1},addr={slot:#x}")
    for number in range(len(machine.functions)):
        device = function_device(f"tpu{number}", places.run, addr=f"{FIRST_FUNCTION_SLOT + number:#x}")
        yield from ("-device", json.dumps(device))
