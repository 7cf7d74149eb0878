"""What is systemd told? The only user of sdnotify."""

from __future__ import annotations

import os

import sdnotify


class ServiceManager:
    """The notification socket of the unit, if this process is its main process; otherwise everything is a no-op."""

    def __init__(self) -> None:
        self._notifier = sdnotify.SystemdNotifier()
        self.watchdog_s = _watchdog_s()
        # The address is in the notifier now. Only the main process may notify, so no child is to inherit it.
        for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
            os.environ.pop(name, None)

    def ready(self) -> None:
        """Start-up is over."""
        self._notifier.notify("READY=1")

    def status(self, line: str) -> None:
        """The one line that `systemctl status` shows."""
        self._notifier.notify("STATUS=" + " ".join(line.split()))

    def alive(self) -> None:
        """Feed the watchdog."""
        self._notifier.notify("WATCHDOG=1")

    def stopping(self) -> None:
        """The end has begun."""
        self._notifier.notify("STOPPING=1")


def _watchdog_s() -> float | None:
    """The watchdog's limit in seconds, which may be a fraction; None when it is off or another process's."""
    limit, owner = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not limit.isdecimal() or int(limit) == 0 or (owner and owner != str(os.getpid())):
        return None
    return int(limit) / 1e6
