"""What do operator and agent tell each other about a container? A value, and its text in /run until the next boot."""

from __future__ import annotations

import json

from tpuagent.values import dataclass

_FOLDER = "/run/tpu-agent/containers"


@dataclass(frozen=True)
class Record:
    """`stopped`: an operator wants it stopped. `asked` counts the requests to begin anew."""

    stopped: bool = False
    asked: int = 0


def record_file(name: str) -> str:
    """Where the record of a container is."""
    return f"{_FOLDER}/{name}.json"


def lock_file(name: str) -> str:
    """What whoever changes a container holds meanwhile."""
    return f"{_FOLDER}/{name}.lock"


def render_record(record: Record) -> str:
    """The text of the file."""
    return json.dumps({"stopped": record.stopped, "asked": record.asked}) + "\n"


def parse_record(text: str | None) -> Record:
    """What the file says. A missing or damaged file says nothing: it must never keep a container from running."""
    try:
        entry = json.loads(text or "{}")
        return Record(entry.get("stopped") is True, int(entry.get("asked", 0)))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return Record()
