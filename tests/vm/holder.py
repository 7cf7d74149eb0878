"""Hold a TPU function as a workload does; runs in a guest: holder.py ADDRESS [group]. Prints "holding" when it has it.

With `group` only the group is opened, and no device obtained from it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import threading

# From linux/vfio.h: _IO(';', 100 + n).
GET_STATUS, SET_CONTAINER, GET_DEVICE, SET_IOMMU = (0x3B64 + n for n in (3, 4, 6, 2))
VIABLE, TYPE1 = 1, 1


def hold(address: str, what: str) -> None:
    """Open container and group, and unless `what` is "group" the device."""
    group = os.path.basename(os.readlink(f"/sys/bus/pci/devices/{address}/iommu_group"))
    group_fd = os.open(f"/dev/vfio/{group}", os.O_RDWR)
    status = struct.unpack("II", fcntl.ioctl(group_fd, GET_STATUS, struct.pack("II", 8, 0)))[1]
    if not status & VIABLE:
        raise SystemExit(f"group {group} is not viable")
    if what == "device":
        container = os.open("/dev/vfio/vfio", os.O_RDWR)
        fcntl.ioctl(group_fd, SET_CONTAINER, struct.pack("i", container))
        fcntl.ioctl(container, SET_IOMMU, TYPE1)
        fcntl.ioctl(group_fd, GET_DEVICE, address.encode() + b"\0")


if __name__ == "__main__":
    hold(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "device")
    print("holding", flush=True)
    threading.Event().wait()
