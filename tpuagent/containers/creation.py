"""How is a container asked for, and how is it told that one is as it should be? Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any

from tpuagent.containers.objects import Container
from tpuagent.containers.spec import Spec

# Whatever has this label is the agent's, and nothing else is.
NAME_LABEL = "tpu-agent.name"
SPEC_LABEL = "tpu-agent.spec"
NODES_LABEL = "tpu-agent.nodes"
_NANO = 1_000_000_000
_HASH_DIGITS = 16
_PLACEHOLDER = re.compile(r"\{(uid|gid|chroot)\}")


def engine_name(name: str) -> str:
    """The container's name for the engine."""
    return f"tpu-agent-{name}"


def render_command(spec: Spec) -> list[str]:
    """The command with its settings put in."""
    values = {"uid": spec.uid, "gid": spec.gid, "chroot": spec.chroot}
    return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in spec.command]


def render_creation(spec: Spec, nodes: Iterable[str] = ()) -> dict[str, Any]:
    """The body of the engine's "create a container". `nodes`: the device nodes that it will have a copy of."""
    body = _render(spec)
    labels = {NAME_LABEL: spec.name, SPEC_LABEL: _hash(body), NODES_LABEL: " ".join(sorted(nodes))}
    return {**body, "Labels": labels}


def is_ours(container: Container, name: str) -> bool:
    """Whether the agent has made it, for this name."""
    return container.label(NAME_LABEL) == name


def is_as_specified(container: Container, spec: Spec, nodes: frozenset[str]) -> bool:
    """Whether it was made from this very specification, and sees all these nodes.

    A privileged container has a copy of /dev, made when it starts: it does not see a node that was made later. A
    node that is gone makes no difference to it.
    """
    seen = frozenset(container.label(NODES_LABEL).split())
    return container.label(SPEC_LABEL) == _hash(_render(spec)) and nodes <= seen


def _hash(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:_HASH_DIGITS]


def _render(spec: Spec) -> dict[str, Any]:
    host: dict[str, Any] = {
        "Privileged": spec.privileged,
        "NetworkMode": spec.network,
        "Binds": [str(mount) for mount in spec.mounts],
        "Ulimits": [{"Name": name, "Soft": limit.soft, "Hard": limit.hard} for name, limit in spec.ulimits],
        "LogConfig": _render_log(spec),
        # The agent restarts it. The engine knows nothing of chips, and would start it in a boot before they are there.
        "RestartPolicy": {"Name": "no"},
    }
    if spec.privileged:  # an engine that maps users refuses privileged containers otherwise
        host["UsernsMode"] = "host"
    if spec.memory is not None:
        host["Memory"] = spec.memory
    if spec.cpus is not None:
        host["NanoCpus"] = int(spec.cpus * _NANO)
    body: dict[str, Any] = {
        "Image": spec.image,
        "Env": [f"{name}={value}" for name, value in spec.env],
        "HostConfig": host,
    }
    if spec.command:
        body["Cmd"] = render_command(spec)
    return body


def _render_log(spec: Spec) -> dict[str, Any]:
    """Docker's own default has no bound, and fills the disk."""
    options = {"max-size": str(spec.log_max_bytes), "max-file": str(spec.log_max_files)} if spec.log_max_bytes else {}
    return {"Type": "json-file", "Config": options}
