"""Where does a container engine answer on this host? Hands."""

from __future__ import annotations

from tpuagent.containers.spec import Policy
from tpuagent.errors import EngineUnavailable
from tpuagent.host import Host

# Docker's first: where both are, the documented set-up uses Docker.
SOCKETS = ("/run/docker.sock", "/run/podman/podman.sock")


def find_socket(host: Host, policy: Policy) -> str:
    """The configured socket, or the first that is there; nobody may answer on it. Raises EngineUnavailable."""
    if policy.socket:
        return policy.socket
    for socket in SOCKETS:
        if host.exists(socket):
            return socket
    why = f"there is neither {SOCKETS[0]} nor {SOCKETS[1]}; is an engine installed and started? apt install docker.io"
    raise EngineUnavailable("find a container engine", why)
