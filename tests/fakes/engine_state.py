"""What does the simulated engine have, and what becomes of it? Containers, images and a registry. No HTTP.

What a container does is decided by its image: by `behave`, or else by the image's tag.

    exit-3, exit-3-after-0.5    ends by itself with a code, at once or after some seconds
    oom                         is killed for the memory that it wants, at once
    not-found, not-executable   cannot be started: 127, 126; so does no-such-path, a-folder
    bad-mount                   cannot be started, for a reason that is not its command
    stubborn                    does not end when it is asked to: it is killed when its grace is over
    writes                      writes a line to each of its streams, and ends
    anything else               runs until it is stopped, and ends with 0 when it is asked to
"""

from __future__ import annotations

import hashlib
import itertools
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import engine_words

_NEVER = "0001-01-01T00:00:00Z"
_TAG = re.compile(r"exit-(?P<code>[0-9]+)(?:-after-(?P<after>[0-9.]+))?")
_LIVE = ("running", "paused", "restarting")
_pids = itertools.count(7_000_001)


class Refusal(Exception):
    """The engine refuses; a status and a message."""


@dataclass(frozen=True)
class Behaviour:
    """What a container of an image does. `runs_s` None: until it is stopped.

    `start_error` is 126 or 127 when it is its command that cannot be run, and 128 for any other reason.
    """

    runs_s: float | None = None
    exit_code: int = 0
    oom: bool = False
    start_error: int = 0
    stubborn: bool = False
    output: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Published:
    """An image in the registry. `fault` is what happens to a pull: fails, stalls, or no space in the engine."""

    id: str
    digest: str
    token: str | None = None
    fault: str | None = None


@dataclass
class FakeContainer:
    """A container and what has become of it."""

    id: str
    name: str
    image: str
    image_id: str
    body: dict[str, Any]
    state: str = "created"
    started_at: str = _NEVER
    finished_at: str = _NEVER
    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""
    pid: int = 0
    output: list[tuple[str, str, str]] = field(default_factory=list)  # moment, stream, text

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.body.get("Labels") or {})

    def document(self) -> dict[str, Any]:
        """As it is inspected."""
        live = self.state in _LIVE
        return {
            "Id": self.id,
            "Name": f"/{self.name}",
            "Image": self.image_id,
            "State": {
                "Status": self.state, "Running": live, "Paused": self.state == "paused",
                "Restarting": self.state == "restarting", "OOMKilled": self.oom_killed, "Dead": self.state == "dead",
                "Pid": self.pid if live else 0, "ExitCode": self.exit_code, "Error": self.error,
                "StartedAt": self.started_at, "FinishedAt": self.finished_at,
            },
            "Config": {
                "Image": self.image, "Labels": self.labels, "Cmd": self.body.get("Cmd"), "Env": self.body.get("Env"),
                "Tty": bool(self.body.get("Tty")),
            },
            "HostConfig": self.body.get("HostConfig") or {},
        }  # fmt: skip


class EngineState:
    """Everything that outlives a restart of the engine. `changed` is notified whenever anything has changed."""

    def __init__(self, words: engine_words.Words) -> None:
        self.words = words
        self.changed = threading.Condition()
        self.containers: dict[str, FakeContainer] = {}
        self.images: dict[str, Published] = {}
        self.registry: dict[str, Published] = {}
        self.events: list[dict[str, Any]] = []
        self.slow_removals = False
        self._behaviours: dict[str, Behaviour] = {}

    # For tests ----------------------------------------------------------------------------------------------------

    def until(self, true: Callable[[], object], limit_s: float = 10.0) -> bool:
        """Wait until something about the engine is true."""
        with self.changed:
            return bool(self.changed.wait_for(true, limit_s))

    def behave(self, reference: str, behaviour: Behaviour) -> None:
        """Let containers of an image do this when they are started from now on."""
        self._behaviours[reference] = behaviour

    def publish(self, reference: str, token: str | None = None, fault: str | None = None) -> Published:
        """Put an image into the registry, for whoever has the token. The same name again is another image."""
        content = hashlib.sha256(f"{reference} {secrets.token_hex()}".encode()).hexdigest()
        published = Published(f"sha256:{content}", f"sha256:{content[::-1]}", token, fault)
        with self.changed:
            self.registry[reference] = published
        return published

    def add_image(self, reference: str) -> Published:
        """Let the engine have an image already."""
        content = hashlib.sha256(reference.encode()).hexdigest()
        with self.changed:
            self.images[reference] = Published(f"sha256:{content}", "")
            self.changed.notify_all()
            return self.images[reference]

    def add_container(self, name: str, image: str, state: str = "running", **body: Any) -> FakeContainer:
        """Somebody else has made a container. `body` as in a creation: Labels, HostConfig, …"""
        self.add_image(image)
        made = self.create(name, {"Image": image, **body})
        if state != "created":
            self.start(made.id)
            self.set_state(name, state)
        return made

    def named(self, name: str) -> FakeContainer:
        """The container of this name; KeyError."""
        with self.changed:
            return {found.name: found for found in self.containers.values()}[name]

    def set_state(self, name: str, state: str) -> None:
        """Let a container be in a state, however it came there: dead, removing, paused, restarting, …"""
        with self.changed:
            self.named(name).state = state
            self.changed.notify_all()

    def end(self, name: str, exit_code: int = 0, *, oom: bool = False) -> None:
        """The container's process ends by itself."""
        with self.changed:
            found = self.named(name)
            told = oom and self.words.tells_oom
            if told:
                self._tell("oom", found)
            self._die(found, 137 if oom else exit_code, oom=told)

    def kill_all(self) -> None:
        """What a stop of the engine does to its containers, unless it is made to keep them."""
        with self.changed:
            for found in list(self.containers.values()):
                self._die(found, 137)

    def finish_removals(self) -> None:
        """The engine is through with the removals that it was slow with."""
        with self.changed:
            for found in [one for one in self.containers.values() if one.state == "removing"]:
                self._forget(found)

    # For clients --------------------------------------------------------------------------------------------------

    def find(self, name: str) -> FakeContainer:
        """By name, id, or the beginning of an id."""
        with self.changed:
            for found in self.containers.values():
                if found.id == name or found.name == name.removeprefix("/"):
                    return found
            for found in self.containers.values():
                if found.id.startswith(name):
                    return found
        raise Refusal(*self.words.no_container(name))

    def image(self, reference: str) -> tuple[str, Published]:
        """An image by its name, its repository's digest or its id."""
        with self.changed:
            for name, image in self.images.items():
                if reference in (name, image.id, pinned(name, image)):
                    return name, image
        raise Refusal(*self.words.no_image(reference))

    def find_published(self, reference: str) -> Published | None:
        """What the registry has by a name with a tag or a digest."""
        with self.changed:
            for name, image in self.registry.items():
                if reference in (name, pinned(name, image)):
                    return image
        return None

    def create(self, name: str, body: dict[str, Any]) -> FakeContainer:
        with self.changed:
            for other in self.containers.values():
                if other.name == name:
                    raise Refusal(*self.words.name_taken(name, other.id))
            _, image = self.image(body.get("Image", ""))
            made = FakeContainer(secrets.token_hex(32), name, body["Image"], image.id, body)
            self.containers[made.id] = made
            self._tell("create", made)
            return made

    def start(self, name: str) -> bool:
        """Whether it did not run already."""
        with self.changed:
            found = self.find(name)
            if found.state == "paused":
                raise Refusal(*self.words.paused(found.id))
            if found.state in _LIVE:
                return False
            behaviour = self._behaviour(found.image)
            if behaviour.start_error:
                self._fail_start(found, behaviour.start_error)
            found.state, found.started_at, found.finished_at = "running", _now(), _NEVER
            found.exit_code, found.error, found.oom_killed, found.pid = 0, "", False, next(_pids)
            self._tell("start", found)
            for stream, text in behaviour.output:
                found.output.append((_now(), stream, text))
            if behaviour.runs_s is not None or behaviour.oom:
                timer = threading.Timer(behaviour.runs_s or 0.0, self._end_run, (found, found.pid, behaviour))
                timer.daemon = True
                timer.start()
            return True

    def stop(self, name: str, grace_s: float, hung_up: Callable[[], bool]) -> bool:
        """Whether it ran. Waits for a stubborn one until its grace is over or whoever asked has hung up."""
        with self.changed:
            found = self.find(name)
            if found.state not in _LIVE:
                return False
            self._tell("kill", found)
            code, pid, end = 0, found.pid, time.monotonic() + grace_s
            if self._behaviour(found.image).stubborn:
                code = 137
                while (left_s := end - time.monotonic()) > 0 and found.pid == pid and not hung_up():
                    self.changed.wait(min(left_s, 0.05))
            self._die(found, code)
            self._tell("stop", found)
            return True

    def pause(self, name: str) -> None:
        with self.changed:
            found = self.find(name)
            found.state = "paused"
            self._tell("pause", found)

    def unpause(self, name: str) -> None:
        with self.changed:
            found = self.find(name)
            if found.state != "paused":
                raise Refusal(*self.words.not_paused(found.id))
            found.state = "running"
            self._tell("unpause", found)

    def remove(self, name: str, *, force: bool) -> None:
        with self.changed:
            found = self.find(name)
            if found.state == "removing":
                raise Refusal(*self.words.being_removed(found.id))
            if found.state in _LIVE and not force:
                raise Refusal(*self.words.runs(found.id))
            self._die(found, 137)
            if self.slow_removals:
                found.state = "removing"
                self.changed.notify_all()
            else:
                self._forget(found)

    def write(self, name: str, stream: str, text: str) -> None:
        """The container writes something."""
        with self.changed:
            self.named(name).output.append((_now(), stream, text))
            self.changed.notify_all()

    def _behaviour(self, reference: str) -> Behaviour:
        if reference in self._behaviours:
            return self._behaviours[reference]
        tag = reference.rpartition(":")[2]
        if found := _TAG.fullmatch(tag):
            return Behaviour(float(found["after"] or 0), int(found["code"]))
        return {
            "oom": Behaviour(oom=True),
            "not-found": Behaviour(start_error=127),
            "no-such-path": Behaviour(start_error=127),
            "not-executable": Behaviour(start_error=126),
            "a-folder": Behaviour(start_error=126),
            "bad-mount": Behaviour(start_error=128),
            "stubborn": Behaviour(stubborn=True),
            "writes": Behaviour(0.0, output=(("stdout", "to stdout\n"), ("stderr", "to stderr\n"))),
        }.get(tag, Behaviour())

    def _fail_start(self, found: FakeContainer, code: int) -> None:
        command = (found.body.get("Cmd") or ["nope"])[0]
        refused = self.words.bad_mount() if code == 128 else self.words.bad_command(code, command)
        if not self.words.in_stream:  # Docker keeps what it said
            found.exit_code, found.error = code, refused[1]
        raise Refusal(*refused)

    def _end_run(self, found: FakeContainer, pid: int, behaviour: Behaviour) -> None:
        with self.changed:
            if found.pid == pid and found.id in self.containers:
                self.end(found.name, behaviour.exit_code, oom=behaviour.oom)

    def _die(self, found: FakeContainer, code: int, *, oom: bool = False) -> None:
        if found.state in _LIVE:
            found.state, found.finished_at, found.pid = "exited", _now(), 0
            found.exit_code, found.oom_killed = code, oom
            self._tell("die", found, exitCode=str(code))

    def _forget(self, found: FakeContainer) -> None:
        self.containers.pop(found.id, None)
        self._tell("destroy", found)

    def _tell(self, action: str, found: FakeContainer, **more: str) -> None:
        noted = {"name": found.name, "image": found.image, **found.labels, **more}
        event = {"Type": "container", "Action": action, "Actor": {"ID": found.id, "Attributes": noted}}
        self.events.append({**event, "status": action, "id": found.id, "time": int(time.time())})
        self.changed.notify_all()


def pinned(name: str, image: Published) -> str:
    """The image's name by its digest, whatever name it has; empty when it has none."""
    repository = name.partition("@")[0] if "@" in name else name.rpartition(":")[0]
    return f"{repository}@{image.digest}" if image.digest else ""


def _now() -> str:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z"
