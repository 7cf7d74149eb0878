"""What does a test need of a container engine, be it a real one or not? The protocol, and what both share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from tpuagent.containers.calls import Stream
from tpuagent.containers.engine import Engine
from tpuagent.containers.http import Limits
from tpuagent.containers.objects import Container, EngineEvent

SOCKET = os.environ.get("TPUAGENT_CONTRACT_ENGINE", "")
REAL = bool(SOCKET)
LABEL = "tpu-agent.contract"
REPOSITORY = "tpu-agent.test/busybox"
LIMIT_S = 120.0 if REAL else 20.0  # for what must happen; an emulated guest is slow
LIMITS = Limits(connect_s=LIMIT_S, answer_s=LIMIT_S) if REAL else Limits()
SHELL = ["/bin/busybox", "sh", "-c"]

# What a container of each tag does. A real engine goes by the command, and the simulated one by the tag.
COMMANDS: dict[str, list[str]] = {
    "lives": [*SHELL, "trap 'exit 0' TERM; while :; do /bin/busybox sleep 0.1; done"],
    "stubborn": [*SHELL, "trap '' TERM; while :; do /bin/busybox sleep 0.1; done"],
    "exit-0": [*SHELL, "exit 0"],
    "exit-7": [*SHELL, "exit 7"],
    "writes": [*SHELL, "echo to stdout; /bin/busybox sleep 0.2; echo to stderr >&2"],
    "oom": [*SHELL, "x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done"],
    "not-found": ["no-such-program"],
    "no-such-path": ["/bin/no-such-program"],
    "not-executable": ["/etc/passwd"],
    "a-folder": ["/etc"],
    "bad-mount": ["/bin/busybox", "true"],
}
_HOSTS: dict[str, dict[str, Any]] = {
    "oom": {"Memory": 16 * 1024 * 1024, "MemorySwap": 16 * 1024 * 1024},
    "bad-mount": {"Binds": ["/etc/hostname:/bin:ro"]},  # a file where the command's folder would have to be
}


class EngineAtHand(Protocol):
    """An engine that has the image of every tag, and a registry that it can reach."""

    @property
    def socket_path(self) -> str:
        """Where it answers."""

    @property
    def podman(self) -> bool:
        """Whether it is, or is like, Podman."""

    def pause(self, name: str) -> None:
        """Pause a container; the agent never does."""

    def published(self, name: str, *, secret: bool = False) -> str:
        """The reference of an image that is in the registry, if `secret` only for who shows the authorization."""

    def digest(self, reference: str) -> str:
        """By which its registry knows a published image."""

    @property
    def unpublished(self) -> str:
        """A reference of which the registry knows nothing."""

    @property
    def authorization(self) -> str:
        """The header that opens what is secret."""

    def forget(self, reference: str) -> None:
        """Remove an image from the engine."""

    def clean(self) -> None:
        """Remove the containers of a test."""


def reference(tag: str) -> str:
    """The image of a tag."""
    return f"{REPOSITORY}:{tag}"


def body(tag: str, **more: Any) -> dict[str, Any]:
    """What creates a container that does what the tag says."""
    # Docker starts nothing confined where the kernel has AppArmor and the system lacks its package.
    host = {"NetworkMode": "host", "SecurityOpt": ["apparmor=unconfined"], **_HOSTS.get(tag, {})}
    labels = {LABEL: "yes", **more.pop("Labels", {})}
    return {"Image": reference(tag), "Cmd": COMMANDS[tag], "Labels": labels, "HostConfig": host, **more}


def found(engine: Engine, name: str) -> Container:
    """The container, which must be there."""
    container = engine.container(name)
    assert container, f"there is no {name}"
    return container


@contextmanager
def followed(engine: Engine) -> Iterator[Stream[EngineEvent]]:
    """The engine's events; a test that waits for one in vain ends."""
    with engine.events() as events:
        limit = threading.Timer(LIMIT_S, events.close)
        limit.daemon = True
        limit.start()
        yield events
        limit.cancel()


def await_event(events: Stream[EngineEvent], action: str, name: str) -> EngineEvent:
    """The next event of this kind."""
    for event in events:
        if (event.action, event.name) == (action, name):
            return event
    raise AssertionError(f"no event says {action} of {name}")


def run(engine: Engine, name: str, tag: str, **more: Any) -> Container:
    """Create and start a container that ends by itself, and what it is when it has ended."""
    with followed(engine) as events:
        engine.start(engine.create(name, body(tag, **more)))
        await_event(events, "die", name)
    # Podman tells of the end before it has written it down.
    assert eventually(lambda: found(engine, name).state == "exited")
    return found(engine, name)


def eventually(true: Callable[[], bool]) -> bool:
    """Whether something of which no event tells becomes true in time."""
    end = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True
