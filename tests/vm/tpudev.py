"""What a guest sees on its PCI bus: functions with given ids, a 64 KiB BAR and a reset, served to QEMU over vfio-user.

    python tpudev.py tpu0.sock=v5p tpu1.sock=1ae0:0042:1ae0:0058:020000

serves each on its socket until it is killed, and prints a line as soon as QEMU can connect to all of them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import struct
import sys
import threading
from dataclasses import dataclass
from enum import IntEnum

HEADER = struct.Struct("<HHIII")  # message, command, size with header, flags, errno
IS_REPLY, WANTS_NO_REPLY, IS_ERROR = 0x1, 0x10, 0x20
MOST_BYTES, MOST_DESCRIPTORS = 1 << 20, 8
BAR0, CONFIG, REGIONS = 0, 7, 9
BAR_BYTES, CONFIG_BYTES = 64 << 10, 4096


@dataclass(frozen=True)
class Ids:
    """The four ids and the class of a PCI function."""

    vendor: int
    device: int
    subvendor: int
    subdevice: int
    class_code: int = 0x120000  # processing accelerator

    @classmethod
    def parse(cls, text: str) -> Ids:
        """A name of `KINDS`, or `vendor:device:subvendor:subdevice` and perhaps `:class`, all hexadecimal."""
        return KINDS[text] if text in KINDS else cls(*(int(part, 16) for part in text.split(":")))


KINDS = {
    "v5p": Ids(0x1AE0, 0x0062, 0x1AE0, 0x00AD),
    "v6e": Ids(0x1AE0, 0x006F, 0x1AE0, 0x00D1),
    "tpu7x": Ids(0x1AE0, 0x0076, 0x1AE0, 0x00F2),
    # Of the same vendor, on the same machines, and not ours to touch.
    "network": Ids(0x1AE0, 0x0042, 0x1AE0, 0x0058, 0x020000),
    "nvme": Ids(0x1AE0, 0x001F, 0x1AE0, 0x0000, 0x010802),
}


class Command(IntEnum):
    VERSION = 1
    DMA_MAP = 2
    DMA_UNMAP = 3
    DEVICE_INFO = 4
    REGION_INFO = 5
    IRQ_INFO = 7
    SET_IRQS = 8
    REGION_READ = 9
    REGION_WRITE = 10
    DEVICE_RESET = 13


def config_space(ids: Ids) -> bytearray:
    """A type 0 header with one 64-bit memory BAR and, at 0x40, a PCI Express endpoint capability that offers FLR."""
    space = bytearray(CONFIG_BYTES)
    struct.pack_into("<HHHH", space, 0x00, ids.vendor, ids.device, 0x0002, 0x0010)  # memory on; has capabilities
    space[0x08:0x0C] = bytes([1]) + ids.class_code.to_bytes(3, "little")
    struct.pack_into("<I", space, 0x10, 0x4)
    struct.pack_into("<HH", space, 0x2C, ids.subvendor, ids.subdevice)
    space[0x34] = 0x40
    struct.pack_into("<BBHI", space, 0x40, 0x10, 0, 0x0002, 1 << 28)
    return space


class Function:
    """One PCI function: its registers, and its answer to each request of QEMU."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._regions: dict[int, bytearray] = {}
        self._reset()

    def _reset(self) -> None:
        self._regions = {CONFIG: config_space(self._ids), BAR0: bytearray(BAR_BYTES)}

    def answer(self, command: int, body: bytes) -> bytes:
        """The body of the reply. Raises OSError for what such a device refuses."""
        if command == Command.VERSION:
            return _version(body)
        if command == Command.DEVICE_INFO:
            return struct.pack("<IIII", 16, 0x3, REGIONS, 5)  # can be reset, is PCI; five kinds of interrupt
        if command == Command.REGION_INFO:
            index = struct.unpack_from("<8xI", body)[0]
            size = len(self._regions.get(index, b""))
            return struct.pack("<IIIIQQ", 32, 0x3 if size else 0, index, 0, size, 0)
        if command == Command.IRQ_INFO:
            return struct.pack("<IIII", 16, 0, struct.unpack_from("<8xI", body)[0], 0)  # but none of any kind
        if command in (Command.REGION_READ, Command.REGION_WRITE):
            return self._access(command, body)
        if command == Command.DEVICE_RESET:
            self._reset()
        elif command not in (Command.DMA_MAP, Command.DMA_UNMAP, Command.SET_IRQS):
            raise OSError(errno.EOPNOTSUPP, "unknown command")
        return body if command == Command.DMA_UNMAP else b""

    def _access(self, command: int, body: bytes) -> bytes:
        offset, index, count = struct.unpack_from("<QII", body)
        region = self._regions.get(index)
        if region is None or offset + count > len(region):
            raise OSError(errno.EINVAL, "no such register")
        if command == Command.REGION_READ:
            return body[:16] + bytes(region[offset : offset + count])
        if index == BAR0 or offset == 0x04:  # of the configuration only the command register can be written
            region[offset : offset + count] = body[16 : 16 + count]
        return body[:16]


def _version(body: bytes) -> bytes:
    minor = struct.unpack_from("<2xH", body)[0]
    limits = {
        "max_msg_fds": MOST_DESCRIPTORS,
        "max_data_xfer_size": MOST_BYTES,
        "pgsizes": 4096,
        "write_multiple": False,
    }
    return struct.pack("<HH", 0, minor) + json.dumps({"capabilities": limits}).encode() + b"\0"


def receive(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        # A DMA_MAP brings the guest's memory along; a device that never does DMA has no use for it.
        part, descriptors, _, _ = socket.recv_fds(peer, size - len(data), MOST_DESCRIPTORS)
        for descriptor in descriptors:
            os.close(descriptor)
        if not part:
            raise ConnectionError("QEMU hung up")
        data += part
    return data


def converse(peer: socket.socket, function: Function) -> None:
    """Answer requests until QEMU hangs up."""
    while True:
        message, command, size, flags, _ = HEADER.unpack(receive(peer, HEADER.size))
        body = receive(peer, size - HEADER.size)
        try:
            reply, error = function.answer(command, body), 0
        except OSError as refusal:
            reply, error = b"", refusal.errno or errno.EIO
        if not flags & WANTS_NO_REPLY:
            kind = IS_REPLY | (IS_ERROR if error else 0)
            peer.sendall(HEADER.pack(message, command, HEADER.size + len(reply), kind, error) + reply)


def serve(listener: socket.socket, function: Function) -> None:
    while True:
        peer, _ = listener.accept()
        with peer, contextlib.suppress(ConnectionError):  # QEMU ends as it likes
            converse(peer, function)


def main(served: list[str]) -> None:
    for item in served:
        path, ids = item.split("=")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        threading.Thread(target=serve, args=(listener, Function(Ids.parse(ids))), daemon=True).start()
    print("listening", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1:])
