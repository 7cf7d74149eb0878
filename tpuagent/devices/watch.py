"""When is the next device pass? Waits for events and time, runs passes, and hands on what they saw: a worker's loop."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from queue import Empty, Queue

from tpuagent.deadline import PatientChild
from tpuagent.devices.apply import Limits
from tpuagent.devices.monitor import Monitor, MonitorLost
from tpuagent.devices.policy import Policy
from tpuagent.devices.reconcile import keep
from tpuagent.devices.report import Pass
from tpuagent.errors import TpuAgentError
from tpuagent.host import Host
from tpuagent.log import get_logger

# The net below the events: what nobody told us of is found within a minute.
PERIOD_S = 60.0
# Without events the net is all there is.
DEAF_PERIOD_S = 10.0
# A failed attempt takes a function from its driver and gives it back, so attempts become rarer.
FIRST_RETRY_S = 10.0
MOST_RETRY_S = 600.0
# The events of one rebind arrive within 25 ms; looking at each alone would cost a pass for each.
QUIET_S = 0.005
BURST_S = 0.02
SILENCE_S = 0.25

log = get_logger()


class DeviceWatch:
    """Keeps the devices as the policy wants them until it is told to stop.

    `tell` gets every pass, or the error of one that could not be made; it is called in the thread that runs `run`.
    """

    def __init__(
        self,
        host: Host,
        policy: Policy,
        open_monitor: Callable[[], Monitor],
        tell: Callable[[Pass | TpuAgentError], None],
        limits: Limits = Limits(),
    ) -> None:
        self._host = host
        self._policy = policy
        self._open_monitor = open_monitor
        self._tell = tell
        self._limits = limits
        self._asked: Queue[Policy | None] = Queue()
        self._wake, self._waker = os.pipe()
        self._monitor: Monitor | None = None
        self._retry_s = self._retry_at = 0.0
        self._looked_at = 0.0
        self._stopped = False

    def follow(self, policy: Policy) -> None:
        """Let the next pass, which comes at once, want something else. From any thread."""
        self._asked.put(policy)
        os.write(self._waker, b"x")

    def stop(self) -> None:
        """Let `run` return after the pass it may be in. From any thread."""
        self._asked.put(None)
        os.write(self._waker, b"x")

    def run(self) -> None:
        """Monitor first and then the first look, so that nothing happens unseen in between."""
        with PatientChild(self._host, self._limits.write_s) as child:
            while True:
                if self._monitor is None:
                    self._listen()
                self._pass(child)
                if not self._wait(child):
                    break
        if self._monitor:
            self._monitor.close()

    def _pass(self, child: PatientChild) -> None:
        retry = time.monotonic() >= self._retry_at
        try:
            seen: Pass | TpuAgentError = keep(self._host, self._policy, retry=retry, limits=self._limits, child=child)
        except TpuAgentError as fault:
            seen = fault
        failed = isinstance(seen, TpuAgentError) or any(report.state == "failed" for report in seen.reports)
        if not failed:
            self._retry_s = self._retry_at = 0.0
        elif retry:
            self._retry_s = min(2 * self._retry_s, MOST_RETRY_S) or FIRST_RETRY_S
            self._retry_at = time.monotonic() + self._retry_s
        self._looked_at = time.monotonic()
        self._tell(seen)

    def _listen(self) -> None:
        try:
            self._monitor = self._open_monitor()
        except (OSError, MonitorLost) as fault:
            log.warning("monitor_unavailable", reason=str(fault), next_look_s=DEAF_PERIOD_S)

    def _wait(self, child: PatientChild) -> bool:
        """Wait for a reason to look again; False when asked to stop."""
        due_s = PERIOD_S if self._monitor else DEAF_PERIOD_S
        if self._retry_at:
            due_s = min(due_s, max(0.0, self._retry_at - time.monotonic()))
        due_at = time.monotonic() + due_s
        if not self._poll(min(self._limits.idle_s, due_s)):
            child.end()  # a quiet agent is one process
        while self._poll(max(0.0, due_at - time.monotonic())):
            heard = self._drain()
            # The first event after a silence is acted on at once; what comes after it is gathered.
            burst_end = time.monotonic() + BURST_S if time.monotonic() - self._looked_at < SILENCE_S else 0.0
            while heard and time.monotonic() < burst_end and self._poll(QUIET_S):
                self._drain()
            if self._stopped:
                return False
            if heard:
                break
        return True

    def _poll(self, limit_s: float) -> bool:
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if self._monitor:
            poll.register(self._monitor.fileno(), select.POLLIN)
        return bool(poll.poll(limit_s * 1000))

    def _drain(self) -> bool:
        """Take the requests and events that are there; whether any is a reason to look."""
        asked = self._take_requests()
        return self._take_events() or asked

    def _take_requests(self) -> bool:
        asked = False
        while True:
            try:
                policy = self._asked.get_nowait()
            except Empty:
                return asked
            os.read(self._wake, 1)
            asked = True
            if policy is None:
                self._stopped = True
            else:
                self._policy = policy
                self._retry_at = 0.0

    def _take_events(self) -> bool:
        if self._monitor is None:
            return False
        try:
            events = self._monitor.receive()
        except MonitorLost as fault:
            log.warning("events_lost", reason=str(fault))
            self._monitor.close()
            self._monitor = None
            return True
        for event in events:
            log.debug("event_seen", subsystem=event.subsystem, action=event.action, name=event.name)
        return bool(events)
