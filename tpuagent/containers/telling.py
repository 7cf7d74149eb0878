"""What is told of one container, and what of that is worth a line of the log?"""

from __future__ import annotations

import time
from collections.abc import Callable

from tpuagent.containers.creation import is_ours
from tpuagent.containers.engine import Engine
from tpuagent.containers.images import digest_of
from tpuagent.containers.objects import Container
from tpuagent.containers.references import parse_reference
from tpuagent.containers.spec import ContainerSeen, Situation
from tpuagent.host import Host
from tpuagent.log import get_logger
from tpuagent.values import replace

PROGRESS_S = 1.0

log = get_logger()


class Teller:
    """Tells of one container, and logs what is not as it was told last."""

    def __init__(self, host: Host, tell: Callable[[ContainerSeen], None]) -> None:
        self._host = host
        self._tell = tell
        self._said: ContainerSeen | None = None
        self._digest_of = "", ""  # an image's id, and the digest that the registry knows it by
        self._told_progress_at = 0.0

    def say(
        self,
        situation: Situation,
        restarts: int,
        state: str,
        reason: str = "",
        container: Container | None = None,
        engine: Engine | None = None,
    ) -> None:
        """It is in this state. `container`: as it was just looked at; `engine`: who may be asked about it."""
        spec, devices = situation.spec, situation.devices
        seen = ContainerSeen(
            spec.name,
            state,
            reason,
            image=spec.image,
            restarts=restarts,
            required=spec.required,
            expected=devices.expected or not spec.needs_devices,
        )
        if container and is_ours(container, spec.name):
            seen = replace(
                seen,
                image=container.image,
                digest=self._digest(engine, spec.image, container) if engine else "",
                id=container.id,
                started_at=container.started_at if container.pid else "",
                memlock=memory_lock_limit(self._host, container.pid) if container.pid else "",
            )
        before, self._said = self._said, seen
        self._tell(seen)
        if before is None or (before.state, before.reason, before.id) != (seen.state, seen.reason, seen.id):
            _log(seen)

    def progress(self, situation: Situation, told: str) -> None:
        """A pull goes on: an engine has more to say of it than anybody reads."""
        now = time.monotonic()
        if self._said and now - self._told_progress_at >= PROGRESS_S:
            self._told_progress_at = now
            self._tell(replace(self._said, state="pulling", reason=told, image=situation.spec.image))

    def _digest(self, engine: Engine, wanted: str, container: Container) -> str:
        if container.image_id != self._digest_of[0]:
            image = engine.image(container.image_id)
            name = parse_reference(wanted).name
            self._digest_of = container.image_id, digest_of(image, name) if image else container.image_id
        return self._digest_of[1]


def _log(seen: ContainerSeen) -> None:
    event = "container_" + seen.state.replace(" ", "_").replace("-", "_")
    facts = {"container": seen.name, "image": seen.image}
    if seen.state == "starting":
        log.debug(event, **facts, reason=seen.reason)
    elif seen.state == "running":
        log.info(event, **facts, digest=seen.digest, id=seen.id[:12], restarts=seen.restarts)
    elif seen.state in ("off", "stopped", "pulling", "waiting"):
        log.info(event, **facts, reason=seen.reason)
    else:
        log.warning(event, **facts, reason=seen.reason)


def memory_lock_limit(host: Host, pid: int) -> str:
    """How much memory a process may lock, in bytes or "unlimited"; empty when it is gone."""
    for line in (host.read(f"/proc/{pid}/limits") or "").splitlines():
        if line.startswith("Max locked memory"):
            return line.split()[3]
    return ""
