"""Looks at containers, made by hand."""

from __future__ import annotations

from typing import Any

from tpuagent.containers.creation import engine_name, render_creation
from tpuagent.containers.lifecycle import Look
from tpuagent.containers.objects import Container
from tpuagent.containers.spec import VBAR, Devices, Spec
from tpuagent.values import replace

NODES = frozenset({"/dev/vfio/11=5.1", "/dev/vfio/12=6.1"})
USABLE = Devices(True, "", NODES)
UNUSABLE = Devices(False, "2 of 8 TPU functions are not usable")
SPEC = VBAR


def container(state: str, spec: Spec = SPEC, nodes: frozenset[str] = NODES, **changes: Any) -> Container:
    """A container that was made from the specification when there were these nodes."""
    labels = tuple(render_creation(spec, nodes)["Labels"].items())
    plain = Container("c1", engine_name(spec.name), spec.image, "sha256:1", state, labels)
    if state == "running":
        plain = replace(plain, started_at="2026-01-01T00:00:00Z", pid=7)
    if state == "exited":
        plain = replace(plain, started_at="2026-01-01T00:00:00Z", finished_at="2026-01-01T00:00:05Z")
    return replace(plain, **changes)


def foreign(state: str = "running") -> Container:
    """Somebody else's, of the same name."""
    return Container("f1", engine_name(SPEC.name), "busybox:1", "sha256:2", state)


def look(found: Container | None, **changes: Any) -> Look:
    """A look at a host on which nothing is in the way."""
    return replace(Look(found, USABLE, has_image=True), **changes)
