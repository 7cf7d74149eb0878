"""Has the kernel killed for want of memory? Hands: reads /proc.

An engine learns of it from the control group of the container, and loses it where the container ends and its group goes
before it has looked. The kernel's own count stays. It does not say who was killed: with a container that has just been
ended by SIGKILL, and that nobody stopped, it is a strong hint.
"""

from __future__ import annotations

import math

from tpuagent.host import Host

RECENT_S = 60.0
_COUNT = "oom_kill"  # of processes, in any control group or for want of memory of the whole host; since Linux 4.13


class OomKills:
    """Looks at the kernel's count from now on."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._known = self._count()
        self._grew_at = -math.inf

    def recent(self, now: float) -> bool:
        """Whether the count has grown between two calls, the later of them at most `RECENT_S` before `now`."""
        count = self._count()
        if count > self._known:
            self._known, self._grew_at = count, now
        return now - self._grew_at <= RECENT_S

    def _count(self) -> int:
        for line in (self._host.read("/proc/vmstat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name == _COUNT and value.isascii() and value.isdigit():
                return int(value)
        return 0
