"""What does an engine's document say? JSON that an engine answers with becomes values. Pure.

Docker and Podman differ in words and in details; whoever reads the values sees no difference. A field that is missing,
or of another type than it should be, counts as empty: it is one that an older or newer engine has otherwise. What has
no id is no such document, and a ValueError.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tpuagent.containers.objects import Container, EngineEvent, EngineInfo, Image

_STATES = ("created", "running", "paused", "restarting", "removing", "exited", "dead")
_LIVE = ("running", "paused", "restarting")
# Podman's own words. One that is being stopped still runs.
_PODMAN_STATES = {"configured": "created", "initialized": "created", "stopped": "exited", "stopping": "running"}
_PODMAN_ACTIONS = {"died": "die", "remove": "destroy", "cleanup": ""}
_NEVER = "0001-01-01T00:00:00"
_LOADED = re.compile(r"^Loaded image(?: ID|\(s\))?: (.+)$", re.MULTILINE)


def parse_info(headers: Mapping[str, str]) -> EngineInfo:
    """What the head of the answer to a ping says; ValueError when no engine answers."""
    lower = {name.lower(): value for name, value in headers.items()}
    name, _, version = lower.get("server", "").partition(" ")[0].partition("/")
    api = lower.get("api-version", "")
    if not re.fullmatch(r"[0-9]+\.[0-9]+", api):
        raise ValueError("what answers there is no container engine (it names no API version)")
    if name == "Libpod":
        return EngineInfo("Podman", version, api)
    return EngineInfo("Docker" if name in ("Docker", "") else name, version, api)


def parse_container(document: Any) -> Container:
    """The engine's answer to an inspection."""
    state, config = _map(document, "State"), _map(document, "Config")
    word = _state(state)
    return Container(
        id=parse_id(document),
        name=_text(document, "Name").removeprefix("/"),
        image=_text(config, "Image"),
        image_id=_digest(_text(document, "Image")),
        state=word,
        labels=tuple(sorted((name, str(value)) for name, value in _map(config, "Labels").items())),
        started_at=_moment(state, "StartedAt"),
        finished_at=_moment(state, "FinishedAt"),
        exit_code=_number(state, "ExitCode"),
        oom_killed=state.get("OOMKilled") is True,
        # Podman notes it, too, when one that runs is asked to start.
        error="" if word in _LIVE else _text(state, "Error"),
        pid=_number(state, "Pid"),
    )


def parse_image(document: Any) -> Image:
    """The engine's answer to an inspection of an image."""
    return Image(_digest(parse_id(document)), _texts(document, "RepoDigests"), _texts(document, "RepoTags"))


def parse_event(document: Any) -> EngineEvent | None:
    """An event of a container; None when it is one of something else, or one that says nothing new."""
    actor = _map(document, "Actor")
    noted = _map(actor, "Attributes")
    # "exec_create: sh", "health_status: healthy": what follows is for people.
    word = (_text(document, "Action") or _text(document, "status")).partition(":")[0]
    action = _PODMAN_ACTIONS.get(word, word)
    if _text(document, "Type") not in ("container", "") or not action:
        return None
    code = str(noted.get("exitCode", noted.get("containerExitCode", "")))
    exit_code = int(code) if action == "die" and re.fullmatch("-?[0-9]{1,9}", code) else None
    return EngineEvent(action, _text(actor, "ID") or _text(document, "id"), _text(noted, "name"), exit_code)


def parse_events(stream: Iterable[Any]) -> Iterator[EngineEvent]:
    """The events of containers in a stream of documents."""
    return (event for event in map(parse_event, stream) if event)


def parse_id(document: Any) -> str:
    """What is the id of what was made, or found?"""
    found = _text(document, "Id")
    if not found:
        raise ValueError("its answer describes nothing")
    return found


def parse_ids(document: Any) -> list[str]:
    """Those of a list."""
    return [parse_id(one) for one in (document if isinstance(document, list) else [None])]


def parse_loaded(document: Any) -> list[str]:
    """The images that a message in the answer to a load says are there now."""
    found = _LOADED.findall(_text(document, "stream"))
    return [name.strip() for names in found for name in names.split(",") if name.strip()]


def parse_refusal(body: bytes) -> str:
    """What the body of an answer with an error's status says; ValueError when no engine has written it."""
    found = _text(json.loads(body), "message")
    if not found:
        raise ValueError("it gives no reason")
    return found


def parse_error(document: Any) -> str:
    """What a message in a stream says went wrong; empty when it does not."""
    return _text(_map(document, "errorDetail"), "message") or _text(document, "error")


def parse_progress(document: Any) -> str:
    """What a message in a stream tells of how far it is; empty when it tells nothing."""
    status = (_text(document, "status") or _text(document, "stream")).strip()
    layer, detail = _text(document, "id"), _map(document, "progressDetail")
    if not status:
        return ""
    current, total = _number(detail, "current"), _number(detail, "total")
    share = f" {_size(current)} of {_size(total)}" if 0 < current <= total else ""
    return f"{layer}: {status}{share}" if layer else status + share


def has_terminal(document: Any) -> bool:
    """Whether an inspected container has one: its log then has no frames."""
    return _map(document, "Config").get("Tty") is True


def _state(state: Mapping[str, Any]) -> str:
    word = _text(state, "Status").lower()
    word = _PODMAN_STATES.get(word, word)
    if word in _STATES:
        return word
    return "running" if state.get("Running") is True else "exited"


def _moment(state: Mapping[str, Any], name: str) -> str:
    text = _text(state, name)
    return "" if text.startswith(_NEVER) else text


def _digest(text: str) -> str:
    return f"sha256:{text}" if re.fullmatch("[0-9a-f]{64}", text) else text


def _map(document: Any, name: str) -> Mapping[str, Any]:
    found = document.get(name) if isinstance(document, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _text(document: Any, name: str) -> str:
    found = document.get(name) if isinstance(document, Mapping) else None
    return found if isinstance(found, str) else ""


def _texts(document: Any, name: str) -> tuple[str, ...]:
    found = document.get(name) if isinstance(document, Mapping) else None
    return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()


def _number(document: Any, name: str) -> int:
    found = document.get(name) if isinstance(document, Mapping) else None
    return found if isinstance(found, int) else 0


def _size(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
