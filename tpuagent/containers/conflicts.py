"""Does something else on this host do a container's work already? Hands: reads the host, asks the engine."""

from __future__ import annotations

from typing import Protocol

from tpuagent.containers.objects import Container
from tpuagent.containers.ports import describe_listener
from tpuagent.containers.spec import Spec
from tpuagent.host import Host

_UNITS = "/etc/systemd/system"
_MASK = "/dev/null"
# A unit has a control group as long as a process of it runs; of the two paths, the second is that of cgroups v1.
_GROUPS = ("/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice")


class Asks(Protocol):
    """What is needed of an engine."""

    def container(self, name: str) -> Container | None:
        """The container of a name."""


def find_conflict(host: Host, engine: Asks, spec: Spec, *, gke: bool) -> str:
    """Why the container must stand down; empty when nothing is in its way."""
    if gke and spec.conflicts:
        return "this is a node of Google Kubernetes Engine, which runs it itself"
    for name in spec.conflicts:
        if found := _unit(host, name) or _snap(host, name) or _container(engine, name):
            return found
    if spec.probe_port is not None and (listener := describe_listener(host, spec.probe_port)):
        return f"port {spec.probe_port} is taken by {listener}"
    return ""


def _unit(host: Host, name: str) -> str:
    unit = f"{name}.service"
    advice = f"to have the agent's own instead: systemctl disable --now {unit}"
    if any(host.exists(f"{group}/{unit}") for group in _GROUPS):
        return f"the unit {unit} runs; {advice}"
    enabled = any(
        folder.endswith((".wants", ".requires")) and host.exists(f"{_UNITS}/{folder}/{unit}")
        for folder in host.names(_UNITS)
    )
    if enabled and host.link(f"{_UNITS}/{unit}") != _MASK:
        return f"the unit {unit} is enabled; {advice}"
    return ""


def _snap(host: Host, name: str) -> str:
    return f"the snap {name} is installed; to have the agent's own instead: snap remove {name}" * host.exists(
        f"/snap/{name}/current"
    )


def _container(engine: Asks, name: str) -> str:
    found = engine.container(name)
    if found is None or found.state in ("exited", "dead", "removing"):
        return ""
    return f"the container {name} is {found.state}; to have the agent's own instead: docker rm -f {name}"
