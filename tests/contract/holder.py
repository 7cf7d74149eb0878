"""Hold a function as a workload does, until its input ends: `python3 holder.py GROUP-NODE ADDRESS group|device`.

Prints "held", or the errno of the group's open. With `device-only` the group's node is closed again.
"""

from __future__ import annotations

import fcntl
import os
import sys

# linux/vfio.h: _IO(';', 100 + n)
_SET_IOMMU, _SET_CONTAINER, _GET_DEVICE_FD = 0x3B66, 0x3B68, 0x3B6A
_TYPE1 = 1


def main(node: str, address: str, by: str) -> None:
    container = os.open("/dev/vfio/vfio", os.O_RDWR)
    try:
        group = os.open(node, os.O_RDWR)
    except OSError as fault:
        print(fault.errno, flush=True)
        return
    if by != "group":
        fcntl.ioctl(group, _SET_CONTAINER, container.to_bytes(4, sys.byteorder))
        fcntl.ioctl(container, _SET_IOMMU, _TYPE1)
        fcntl.ioctl(group, _GET_DEVICE_FD, address.encode() + b"\0")
    if by == "device-only":
        os.close(group)
    print("held", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
