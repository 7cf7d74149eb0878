"""Who listens on a port of the host? Hands: reads /proc, and connects to nobody.

A connection would be a guest that whatever listens has to serve and may complain about; the kernel's own list tells the
same.
"""

from __future__ import annotations

import os

from tpuagent.host import GONE, Host

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_LISTENS = "0A"
# Columns of proc_net_tcp: local address, state and inode.
_ADDRESS, _STATE, _INODE = 1, 3, 9


def listening_sockets(host: Host, port: int) -> frozenset[str]:
    """The inodes of the sockets that listen on a port, of any local address."""
    found = set()
    for table in _TABLES:
        for line in (host.read(table) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > _INODE and fields[_STATE] == _LISTENS and fields[_ADDRESS].endswith(f":{port:04X}"):
                found.add(fields[_INODE])
    return frozenset(found)


def describe_listener(host: Host, port: int) -> str:
    """The process that listens on a port, in words; empty when nobody does."""
    sockets = {f"socket:[{inode}]" for inode in listening_sockets(host, port)}
    if not sockets:
        return ""
    for pid in host.processes():
        if any(_link(host, f"/proc/{pid}/fd/{name}") in sockets for name in _descriptors(host, pid)):
            command = (host.read(f"/proc/{pid}/comm") or "?").strip()
            return f"process {pid} ({command})"
    return "a process that cannot be seen from here"


def _descriptors(host: Host, pid: int) -> list[str]:
    try:
        return host.names(f"/proc/{pid}/fd")
    except PermissionError:
        return []


def _link(host: Host, path: str) -> str | None:
    try:
        return os.readlink(host.at(path))
    except OSError as fault:
        if fault.errno in GONE or isinstance(fault, PermissionError):
            return None
        raise
