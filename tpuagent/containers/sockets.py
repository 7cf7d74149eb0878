"""Where does a container engine answer on this host? Hands."""

from __future__ import annotations

from tpuagent.containers.spec import Policy
from tpuagent.errors import EngineUnavailable
from tpuagent.host import Host

DOCKER = "/run/docker.sock"
# Docker's first: where both are, the documented set-up uses Docker.
SOCKETS = (DOCKER, "/run/podman/podman.sock")
_DOCKER_PID = "/run/docker.pid"
# Columns of /proc/net/unix: flags, inode and path; and the flag of a socket that listens.
_FLAGS, _INODE, _PATH = 3, 6, 7
_LISTENS = 0x10000


def find_socket(host: Host, policy: Policy) -> str:
    """The configured socket, or the first that is there; nobody may answer on it. Raises EngineUnavailable."""
    if policy.socket:
        return policy.socket
    for socket in SOCKETS:
        if host.exists(socket):
            return socket
    why = f"there is neither {SOCKETS[0]} nor {SOCKETS[1]}; is an engine installed and started? apt install docker.io"
    raise EngineUnavailable("find a container engine", why)


def docker_pid(host: Host) -> str:
    """The process that is Docker; empty when none runs, or when it does not say where."""
    pid = host.read(_DOCKER_PID) or ""
    return pid if pid.isdecimal() and host.exists(f"/proc/{pid}") else ""


def is_stopping(host: Host) -> bool:
    """Whether Docker runs and takes no calls any more.

    When it ends it first stops to listen, then ends its containers, and tells of that to those who are still connected.
    systemd goes on to listen for it: whoever connects now makes systemd start Docker again, against the wish of whoever
    has stopped it. The kernel's tables tell whether Docker itself still has the socket that listens.
    """
    pid = docker_pid(host)
    lines = (host.read("/proc/net/unix") or "").splitlines() if pid else []
    sockets = {
        f"socket:[{fields[_INODE]}]"
        for fields in map(str.split, lines)
        if len(fields) > _PATH and fields[_PATH] == DOCKER and int(fields[_FLAGS], 16) & _LISTENS
    }
    return bool(sockets) and not any(
        host.link(f"/proc/{pid}/fd/{name}") in sockets for name in host.names(f"/proc/{pid}/fd")
    )
