"""How does a log line look? An event in the past tense and facts as keys, one line each, on stderr.

structlog is loaded by the first line: that takes longer than everything that the first device pass needs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

# The journal reads these prefixes as priorities; see sd-daemon(3).
_PRIORITY = {"debug": "<7>", "info": "<6>", "warning": "<4>", "error": "<3>"}


def is_journal(descriptor: int) -> bool:
    """Whether a descriptor is the journal's stream. The variable alone is inherited by every shell of a session."""
    found = os.fstat(descriptor)
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class _Stream(io.TextIOBase):
    """Stderr, for a reader that may have stopped reading.

    The journal itself can hang: on Linux 6.1 it reads the `uevent` of a function whose unbind waits in the kernel. A
    line is lost then, and the agent goes on.
    """

    def __init__(self) -> None:
        os.set_blocking(sys.stderr.fileno(), False)

    def write(self, text: str) -> int:
        """Write the text, or drop it."""
        with suppress(OSError):  # full, or nobody reads it any more
            os.write(sys.stderr.fileno(), text.encode(errors="backslashreplace"))
        return len(text)


class Logger:
    """Where the process's lines go. From any thread."""

    def __init__(self) -> None:
        self._journal = self._debug = False
        self._loaded: Any = None

    def configure(self, *, journal: bool, debug: bool) -> None:
        """Say how the next lines look."""
        self._journal, self._debug, self._loaded = journal, debug, None

    def debug(self, event: str, **facts: object) -> None:
        """For whoever looks for a fault of the agent's own; dropped unless it was asked for."""
        if self._debug:
            self._load().debug(event, **facts)

    def info(self, event: str, **facts: object) -> None:
        """Something was done or has changed."""
        self._load().info(event, **facts)

    def warning(self, event: str, **facts: object) -> None:
        """Something is not as it should be."""
        self._load().warning(event, **facts)

    def error(self, event: str, **facts: object) -> None:
        """The agent itself cannot go on."""
        self._load().error(event, **facts)

    def _load(self) -> Any:
        if self._loaded is None:
            import structlog

            structlog.configure(
                processors=[structlog.stdlib.add_log_level, _with_priority if self._journal else _plain],
                logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Stream()) if self._journal else sys.stderr),
            )
            self._loaded = structlog.get_logger().bind()
        return self._loaded


_LOGGER = Logger()


def get_logger() -> Logger:
    """The process's logger; `configure` makes it look differently everywhere."""
    return _LOGGER


def configure(*, journal: bool, debug: bool = False) -> None:
    """Set the process's logger up: for the journal with its priorities, otherwise plain."""
    _LOGGER.configure(journal=journal, debug=debug)


def _plain(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    level = event.pop("level")
    return f"{level} {_line(event)}"


def _with_priority(_: object, __: str, event: MutableMapping[str, Any]) -> str:
    return _PRIORITY[event.pop("level")] + _line(event)


def _line(event: Mapping[str, Any]) -> str:
    facts = (f"{key}={_shown(value)}" for key, value in event.items() if key != "event")
    return " ".join((str(event["event"]), *facts))


def _shown(value: object) -> str:
    """Text that stays on one line and can be told from the next key."""
    text = str(value)
    return text if text.isprintable() and text and " " not in text and '"' not in text else ascii(text)
