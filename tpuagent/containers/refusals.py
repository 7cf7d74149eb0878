"""What does an engine's refusal mean? Its status and its words become the fault that a caller can tell apart. Pure.

An engine has one status for many reasons, and the reason in words that differ between versions. Where the words are
unknown it is a plain EngineRefused, with them.
"""

from __future__ import annotations

import re

from tpuagent.errors import (
    BadCommand,
    EngineRefused,
    ImageDenied,
    ImageUnknown,
    NameTaken,
    NoSpace,
    NoSuchContainer,
)

NO_CONTAINER = "there is no such container"

_BAD_REQUEST = 400
_NOT_FOUND = 404
_CONFLICT = 409
_LONGEST = 400
_SPACE = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
# Not any "permission denied" or "no such file": a mount or a limit may be what is wrong.
_COMMAND = re.compile(
    r"container process.*\bexec: |attempted to invoke a command that was not found"
    r"|crun: (?:executable file |open executable|exec(?:ve)? |the path `[^`]*` (?:exists but |is not a regular file))"
    r"|exec format error",
    re.DOTALL,
)
_DENIED = re.compile(
    r"(?<!permission )\bdenied:|pull access denied|access to the resource is denied|unauthorized|forbidden"
    r"|authentication required|no basic auth credentials|insufficient_scope|status(?: ?code)?:? ?(?:from \S+ )*40[13]",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(
    r"manifest unknown|name unknown|manifest for .* not found|not found: |: not found|no such image|image not known"
    r"|repository .*(?:not found|does not exist)|no such manifest|404 \(?not found",
    re.IGNORECASE | re.DOTALL,
)
_NO_CONTAINER = re.compile(r"no such container|no container with", re.IGNORECASE)
_REMOVING = re.compile(r"removal of container .* already in progress|being removed", re.IGNORECASE | re.DOTALL)
_STEPS = (("apparmor_parser", "install apparmor, which Docker only recommends"),)
_SPACE_STEP = "the engine has no space left on its disk; look with: df -h /var/lib, and make room"


def _no_space(action: str, message: str, status: int) -> EngineRefused | None:
    """NoSpace when that is what it is."""
    return NoSpace(action, f"{_SPACE_STEP} (ENOSPC)", status) if _SPACE.search(message) else None


def refusal(action: str, status: int, message: str) -> EngineRefused:
    """The fault of any call."""
    if found := _no_space(action, message, status):
        return found
    if status == _NOT_FOUND and _NO_CONTAINER.search(message):
        return NoSuchContainer(action, NO_CONTAINER, status)
    step = next((f"; {step}" for words, step in _STEPS if words in message), "")
    return EngineRefused(action, (shortened(message) or f"the engine answers {status}") + step, status)


def creation_refusal(action: str, status: int, message: str) -> EngineRefused:
    """The fault of a creation. Podman calls a taken name an error of its own (500)."""
    if status == _CONFLICT or "name is already in use" in message or "already in use by" in message:
        return NameTaken(action, f"another container has the name; {shortened(message)}", status)
    if status == _NOT_FOUND and "image" in message.lower():
        return ImageUnknown(action, f"the engine does not have the image; {shortened(message)}", status)
    return refusal(action, status, message)


def start_refusal(action: str, status: int, message: str) -> EngineRefused:
    """The fault of a start. BadCommand only when it is the command itself that cannot be run."""
    if _COMMAND.search(message) and not _SPACE.search(message):
        why = f"its command cannot be run: {shortened(_last_cause(message))}; correct its command, or its image"
        return BadCommand(action, why, status)
    return refusal(action, status, message)


def pull_refusal(action: str, status: int, message: str) -> EngineRefused:
    """The fault of a pull; status 0 when it came in the stream.

    A registry that hides what there is from who may not see it says both at once; then it is denied: a token may help.
    """
    if found := _no_space(action, message, status):
        return found
    if _DENIED.search(message) or status in (401, 403):
        return ImageDenied(action, f"the registry denies it: {shortened(message)}", status)
    if _UNKNOWN.search(message) or status == _NOT_FOUND:
        why = f"the registry has no such image; correct the name or the tag: {shortened(message)}"
        return ImageUnknown(action, why, status)
    return refusal(action, status, message)


def is_being_removed(status: int, message: str) -> bool:
    """Whether a removal is refused because it is under way."""
    return status == _CONFLICT and bool(_REMOVING.search(message))


def is_paused(message: str) -> bool:
    """Whether a container has to be resumed first."""
    return "is running or paused" in message


def is_not_paused(message: str) -> bool:
    """Whether there was nothing to resume."""
    return "is not paused" in message


def is_wrong_version(status: int, message: str) -> bool:
    """Whether the engine is another one than when it was asked for its version."""
    return status == _BAD_REQUEST and message.startswith("client version")


def shortened(message: str) -> str:
    """One line of no great length: a refusal becomes part of a status line."""
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def _last_cause(message: str) -> str:
    """Without the layers of the engine that it came through: exec: "nope": executable file not found in $PATH."""
    found = re.search(r"exec: .*", message, re.DOTALL)
    return (found[0] if found else message).removesuffix(": unknown")
