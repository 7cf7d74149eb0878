"""What is a worker? A thread whose reports are its signs of life, and whose death is an event like any other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Worker:
    """A thread that runs `work` until `stop` is called, and reports at least every `deadline_s` seconds."""

    def __init__(self, name: str, work: Callable[[], None], stop: Callable[[], None], deadline_s: float) -> None:
        self.name = name
        self._work = work
        self._stop = stop
        self._deadline_s = deadline_s
        self._due = float("inf")
        self._thread: threading.Thread | None = None

    def start(self, died: Callable[[str, Exception], None]) -> None:
        """Begin, once; `died` gets the name and what the worker raised, in the worker's thread."""

        def guarded() -> None:
            try:
                self._work()
            except Exception as fault:  # noqa: BLE001  (the worker boundary: whatever it was, the agent must hear of it)
                died(self.name, fault)

        if self._thread is None:
            self.heard()
            # A daemon thread: what it waits for must not keep the process from ending.
            self._thread = threading.Thread(target=guarded, name=self.name, daemon=True)
            self._thread.start()

    def heard(self) -> None:
        """It has reported."""
        self._due = time.monotonic() + self._deadline_s

    @property
    def late(self) -> bool:
        """Whether it has not reported for too long."""
        return time.monotonic() >= self._due

    def ask_to_stop(self) -> None:
        """Let it end soon."""
        if self._thread:
            self._stop()

    def join(self, limit_s: float) -> None:
        """Wait for its end, so long at most."""
        if self._thread:
            self._thread.join(max(0.0, limit_s))
