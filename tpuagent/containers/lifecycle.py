"""What is to be done about a container? Pure: what is remembered, one look and the time become a decision.

It decides by what is there and not by what happened: an event only means that it is time to look. So it does not matter
which events were missed while the agent, the engine or the machine was down.
"""

from __future__ import annotations

import signal

from tpuagent.containers.creation import is_as_specified, is_ours
from tpuagent.containers.objects import Container
from tpuagent.containers.spec import Devices, Spec
from tpuagent.errors import BadCommand, EngineRefused, ImageDenied, ImageUnknown, TpuAgentError
from tpuagent.values import dataclass, replace

HEALTHY_S = 60.0
FIRST_RETRY_S, MOST_RETRY_S = 0.5, 60.0
# For what does not get better by itself: a person, or a registry, has to do something.
FIRST_RARE_S, MOST_RARE_S = 60.0, 600.0
PERIOD_S = 30.0
REMOVAL_S = 1.0
LISTEN_S = 30.0
JITTER = (0.9, 1.1)
_ALIVE = frozenset({"running", "restarting", "paused"})
_ENDED = frozenset({"exited", "dead"})
_NOT_FOUND_CODES = frozenset({126, 127})
_BAD_REQUEST = 400
_SIGNALS = 128


# Actions ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fetch:
    """Get the image."""


@dataclass(frozen=True)
class Create:
    """Make the container."""


@dataclass(frozen=True)
class Start:
    """Start the container of this id, which is there."""

    id: str


@dataclass(frozen=True)
class Stop:
    """End the container of this id."""

    id: str


@dataclass(frozen=True)
class Remove:
    """Remove the container of this id, which does not run."""

    id: str


@dataclass(frozen=True)
class Unpause:
    """Let the container of this id go on."""

    id: str


Action = Fetch | Create | Start | Stop | Remove | Unpause


# Looks and decisions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """The container at one look, and what its start depends on.

    `conflict` says why it must stand down. `stopped`: an operator wants it stopped. `has_image`: the engine has the
    image that a new container is to have. `listening`: somebody listens on its port. `settled`: it is known what kind
    of host this is. `oom_kills`: the kernel has just killed somebody for want of memory.
    """

    container: Container | None
    devices: Devices
    conflict: str = ""
    stopped: bool = False
    has_image: bool = False
    listening: bool = True
    settled: bool = True
    oom_kills: bool = False


@dataclass(frozen=True)
class Memory:
    """What is remembered from one look to the next, with times of the monotonic clock.

    `fresh`: what has ended was not seen running by this agent, so that it says nothing of the container. `ended` is the
    last end that was counted. `up_since` is when it was first seen to run, 0 while it does not.
    """

    fresh: bool = True
    failures: int = 0
    restarts: int = 0
    retry_at: float = 0.0
    state: str = ""
    reason: str = ""
    ended: str = ""
    up_since: float = 0.0
    silent_since: float = 0.0


@dataclass(frozen=True)
class Decision:
    """What the container is, what to do now, and when to look again if nothing happens and nothing is to be done.

    `awaits_port`: somebody beginning to listen on its port is something that happens.
    """

    state: str
    reason: str = ""
    action: Action | None = None
    wait_s: float = PERIOD_S
    awaits_port: bool = False


def decide(spec: Spec, memory: Memory, look: Look, now: float, jitter: float = 1.0) -> tuple[Memory, Decision]:
    """`jitter` is a random factor for the next delay, of the range JITTER."""
    container = look.container
    if container and not is_ours(container, spec.name):
        return memory, Decision("blocked", _foreign(container))
    if container and container.state == "removing":
        return memory, Decision("starting", "the engine is still removing the container of before", wait_s=REMOVAL_S)
    if spec.off or look.stopped:
        return Memory(restarts=memory.restarts), _away(spec, look)
    if container and container.state in _ALIVE:
        return _keep(spec, memory, look, container, now)
    if container and container.state in _ENDED and _fits(spec, look, container):
        memory = _count_end(spec, memory, look, container, now, jitter)
    memory = replace(memory, fresh=False, up_since=0.0, silent_since=0.0)
    return memory, _obstacle(spec, memory, look, now) or Decision("starting", action=_next_action(spec, look))


def after_fault(memory: Memory, fault: TpuAgentError, now: float, jitter: float = 1.0) -> tuple[Memory, Decision]:
    """An action, or the look itself, has failed."""
    bad_request = isinstance(fault, EngineRefused) and fault.status == _BAD_REQUEST
    rare = bad_request or isinstance(fault, BadCommand | ImageUnknown | ImageDenied)
    memory = _plan_retry(memory, str(fault), now, jitter, rare=rare)
    return memory, Decision(memory.state, memory.reason, wait_s=memory.retry_at - now)


def retry_delay_s(failures: int, *, rare: bool = False) -> float:
    """Seconds before the attempt after so many failures in a row.

    The first one is at once: most ends are accidents, and jobs wait for the container. Then from half a second on,
    doubling to a minute; or from one minute to ten for what a person has to mend.
    """
    if rare:
        return float(min(MOST_RARE_S, FIRST_RARE_S * 2 ** min(failures - 1, 32)))
    return 0.0 if failures <= 1 else float(min(MOST_RETRY_S, FIRST_RETRY_S * 2 ** min(failures - 2, 32)))


# Parts ------------------------------------------------------------------------------------------------------------


def _foreign(container: Container) -> str:
    return (
        f"the engine has a container {container.name} that is not the agent's ({container.id[:12]},"
        f" from {container.image}); if nobody needs it: docker rm -f {container.name}"
    )


def _away(spec: Spec, look: Look) -> Decision:
    """Not to run: end it, and remove it unless an operator may want to start it again."""
    state, reason = ("off", "") if spec.off else ("stopped", _stopped(spec))
    container = look.container
    if container is None:
        return Decision(state, reason)
    if container.state in _ALIVE:
        return Decision(state, reason, Stop(container.id))
    return Decision(state, reason, Remove(container.id) if spec.off else None)


def _stopped(spec: Spec) -> str:
    return f"by an operator; start it with: tpuagent containers restart {spec.name}"


def _fits(spec: Spec, look: Look, container: Container) -> bool:
    """Whether it is as specified. Nodes count while they are usable: only then can a container have all of them."""
    nodes = look.devices.nodes if spec.needs_devices and look.devices.usable else frozenset[str]()
    return is_as_specified(container, spec, nodes)


def _keep(spec: Spec, memory: Memory, look: Look, container: Container, now: float) -> tuple[Memory, Decision]:
    """It lives: adopt it, unless it has to be another one and that one could start."""
    if (look.devices.usable or not spec.needs_devices) and not _fits(spec, look, container):
        why = "it is being replaced: its configuration or a device node has changed since it was made"
        return memory, Decision("starting", why, Stop(container.id))
    if container.state == "paused":
        return memory, Decision("starting", "it was paused", Unpause(container.id))
    return _running(spec, memory, look.listening, now)


def _obstacle(spec: Spec, memory: Memory, look: Look, now: float) -> Decision | None:
    """What keeps it from being started now."""
    if spec.needs_devices and not look.devices.usable:
        return Decision("waiting", look.devices.reason)
    if not look.settled:
        return Decision("waiting", "it is not known yet what kind of host this is: its metadata has not answered")
    if look.conflict:
        return Decision("stood down", look.conflict)
    if now < memory.retry_at:
        return Decision(memory.state, memory.reason, wait_s=memory.retry_at - now)
    return None


def _running(spec: Spec, memory: Memory, listening: bool, now: float) -> tuple[Memory, Decision]:
    up_since = memory.up_since or now
    memory = replace(memory, fresh=False, up_since=up_since, retry_at=0.0, reason="")
    if listening:
        return replace(memory, silent_since=0.0), Decision("running")
    memory = replace(memory, silent_since=memory.silent_since or now)
    left_s = LISTEN_S - (now - memory.silent_since)
    if left_s > 0:
        why = f"nothing listens on port {spec.probe_port} yet"
        return memory, Decision("starting", why, wait_s=left_s, awaits_port=True)
    why = f"it runs, but nothing listens on port {spec.probe_port}; look at: tpuagent containers logs {spec.name}"
    return memory, Decision("silent", why, awaits_port=True)


def _count_end(spec: Spec, memory: Memory, look: Look, container: Container, now: float, jitter: float) -> Memory:
    """Each end counts once, and only if this agent was there when it happened."""
    end = f"{container.id} {container.finished_at}"
    if end == memory.ended or not container.finished_at:
        return memory
    if memory.fresh:
        return replace(memory, ended=end)
    failures = 0 if container.ran_s >= HEALTHY_S else memory.failures
    memory = replace(memory, ended=end, failures=failures, restarts=memory.restarts + 1)
    rare = container.exit_code in _NOT_FOUND_CODES
    return _plan_retry(memory, describe_end(spec, container, oom_kills=look.oom_kills), now, jitter, rare=rare)


def describe_oom(spec: Spec) -> str:
    """Why the kernel has killed it, or a process of it."""
    limit = f"more than containers.{spec.name}.memory allows" if spec.memory else "more than this host has"
    return f"the kernel killed it (OOM): it wanted {limit}"


def describe_end(spec: Spec, container: Container, *, oom_kills: bool) -> str:
    """Why it ended, and what to do if it does so again."""
    code = container.exit_code
    if container.oom_killed or (oom_kills and code == _SIGNALS + signal.SIGKILL):
        return describe_oom(spec)
    if code in _NOT_FOUND_CODES:
        return f"its command cannot be run ({code}); see containers.{spec.name}.command and .image"
    if code > _SIGNALS:
        try:
            return f"it was ended by {signal.Signals(code - _SIGNALS).name}"
        except ValueError:
            pass
    return f"it ended with {code}; look at: tpuagent containers logs {spec.name}"


def _plan_retry(memory: Memory, reason: str, now: float, jitter: float, *, rare: bool) -> Memory:
    failures = memory.failures + 1
    delay_s = retry_delay_s(failures, rare=rare) * jitter
    if delay_s:
        reason = f"{reason}; attempt {failures + 1} {delay_s:.3g} s later"
    return replace(
        memory, failures=failures, retry_at=now + delay_s, state="failed" if rare else "back-off", reason=reason
    )


def _next_action(spec: Spec, look: Look) -> Action:
    container = look.container
    if container is None:
        return Create() if look.has_image else Fetch()
    if container.state == "dead" or not _fits(spec, look, container):
        return Remove(container.id)
    return Start(container.id)
