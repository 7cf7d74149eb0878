"""The daemon: workers put events into one inbox, one loop owns the state and publishes it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from queue import Empty, Queue
from typing import TYPE_CHECKING

from tpuagent import __version__, status
from tpuagent.config import Config, load
from tpuagent.devices.monitor import Monitor
from tpuagent.devices.report import Pass
from tpuagent.devices.watch import PERIOD_S, DeviceWatch
from tpuagent.errors import ConfigError, DeadlinePassed, InUse, TpuAgentError
from tpuagent.events import (
    ContainersSeen,
    DevicesSeen,
    Event,
    MetadataSeen,
    ReloadAsked,
    StopAsked,
    WorkerDied,
    WorkerNeeded,
)
from tpuagent.host import Host
from tpuagent.log import get_logger
from tpuagent.metadata.account import ServiceAccount
from tpuagent.metadata.refresh import open_server
from tpuagent.metadata.seen import EnvironmentSeen, PlaceSeen, Seen, TpuEnvSeen
from tpuagent.metadata.watch import LONGEST_SILENCE_S, MetadataWatch
from tpuagent.picture import Picture
from tpuagent.systemd import ServiceManager
from tpuagent.worker import Worker

if TYPE_CHECKING:
    from tpuagent.containers.fleet import Fleet
    from tpuagent.containers.supervisor import Supervisor

LOCK = "/run/tpu-agent/agent.lock"  # two agents would take each other's work for a fault
BOOT_ID = "/proc/sys/kernel/random/boot_id"
STOP_LIMIT_S = 5.0
# The first line of the log waits for the first pass, which loading the log would delay; so long at most.
SILENT_S = 2.0
# A pass over eight functions that all wait for their deadlines, twice, after the longest wait for the next pass.
DEVICES_DEADLINE_S = PERIOD_S + 120.0
METADATA_DEADLINE_S = LONGEST_SILENCE_S + 60.0
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

log = get_logger()


class Agent:
    """One daemon's life. `run` returns the exit code."""

    def __init__(self, host: Host, config_file: str | None, open_monitor: Callable[[], Monitor]) -> None:
        self._host = host
        self._config_file = config_file
        self._config: Config = load(host, config_file)
        self._manager = ServiceManager()
        # Not SimpleQueue: on Python 3.10 its get() may wait for ever when the timeout is short (seen with 0).
        self._inbox: Queue[Event] = Queue()
        tell = self._inbox.put
        self._devices = DeviceWatch(host, self._config.devices, open_monitor, lambda seen: tell(DevicesSeen(seen)))
        self._metadata = MetadataWatch(
            host, self._config.metadata, open_server(), lambda seen: tell(MetadataSeen(seen))
        )
        self._fleet: Fleet | None = None
        self._workers = {
            "devices": Worker("devices", self._devices.run, self._devices.stop, DEVICES_DEADLINE_S),
            "metadata": Worker("metadata", self._metadata.run, self._metadata.stop, METADATA_DEADLINE_S),
            "signals": Worker("signals", self._await_signals, lambda: None, float("inf")),
        }
        self._picture = Picture(self._config.metadata.tpu_env.ready_wait_s, host.read(BOOT_ID) or "")
        self._published: status.Document = {}
        self._started_ticks = status.started_ticks(host, os.getpid())
        self._said = False
        self._ready = False

    def run(self) -> int:
        """Work until asked to stop (0), or until a worker fails (1). InUse when another agent runs."""
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._host.lock(LOCK, limit_s=0))
            except DeadlinePassed as fault:
                raise InUse("run the agent", f"another one runs already: {fault.why}") from None
            return self._run()

    def _run(self) -> int:
        # Before any thread starts: they inherit the mask, and only the signals' worker takes the signals.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._publish()
        self._start("devices")
        self._start("signals")
        code = self._loop()
        self._manager.stopping()
        self._stop_workers()
        self._host.remove(status.STATUS_FILE)
        log.info("agent_stopped", code=code)
        return code

    def _start(self, name: str) -> None:
        self._workers[name].start(lambda name, fault: self._inbox.put(WorkerDied(name, fault)))

    def _stop_workers(self) -> None:
        end = time.monotonic() + STOP_LIMIT_S
        for worker in self._workers.values():
            worker.ask_to_stop()
        for name, worker in self._workers.items():
            if name != "signals":  # that one ends with the process
                worker.join(end - time.monotonic())

    def _await_signals(self) -> None:
        while True:
            number = signal.sigwait(_SIGNALS)
            self._inbox.put(ReloadAsked() if number == signal.SIGHUP else StopAsked())

    def _loop(self) -> int:
        while True:
            if not any(worker.late for worker in self._workers.values()):
                self._manager.alive()
            event: Event | None = None
            with contextlib.suppress(Empty):
                event = self._inbox.get(timeout=self._tick_s())
            if not self._said:
                self._said = True
                log.info("agent_started", version=__version__, pid=os.getpid())
            match event:
                case None:
                    pass
                case StopAsked():
                    return 0
                case WorkerDied(worker, fault):
                    log.error("worker_died", worker=worker, exc_type=type(fault).__name__, reason=str(fault))
                    return 1
                case _:
                    self._take(event)
            self._publish()

    def _tick_s(self) -> float | None:
        """How long the loop may wait for an event: for the watchdog's sake, READY's, and the first line's."""
        limits = [self._manager.watchdog_s / 2] if self._manager.watchdog_s else []
        if not self._said:
            limits.append(SILENT_S)
        if not self._ready and (wait_s := self._picture.wait_s):
            limits.append(wait_s)
        return min(limits, default=None)

    def _take(self, event: Event) -> None:
        match event:
            case ReloadAsked():
                self._reload()
            case DevicesSeen(outcome):
                self._take_devices(outcome)
            case MetadataSeen(seen):
                self._take_metadata(seen)
            case ContainersSeen(container):
                self._workers[_container_worker(container.name)].heard()
                self._picture.containers[container.name] = container
            case WorkerNeeded(supervisor):
                self._employ(supervisor)

    # Events -------------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        try:
            self._config = load(self._host, self._config_file)
        except ConfigError as fault:
            self._picture.note("configuration", f"the old configuration is kept: {fault}")
            return
        self._picture.note("configuration", None)
        log.info("configuration_loaded")
        self._devices.follow(self._config.devices)
        self._metadata.follow(self._config.metadata)
        if self._fleet:
            self._fleet.follow(self._config.containers)

    def _open_fleet(self) -> Fleet:
        from tpuagent.containers.fleet import Fleet

        tell = self._inbox.put
        fleet = Fleet(
            self._host,
            self._config.containers,
            ServiceAccount(open_server),
            lambda seen: tell(ContainersSeen(seen)),
            lambda supervisor: tell(WorkerNeeded(supervisor)),
        )
        # It waits for as long as nothing happens.
        self._workers["engine"] = Worker("engine", fleet.run, fleet.stop, float("inf"))
        self._start("engine")
        fleet.start()
        return fleet

    def _employ(self, supervisor: Supervisor) -> None:
        name = _container_worker(supervisor.name)
        self._workers[name] = Worker(name, supervisor.run, supervisor.stop, supervisor.longest_silence_s + 60.0)
        self._start(name)

    def _take_devices(self, outcome: Pass | TpuAgentError) -> None:
        self._workers["devices"].heard()
        if self._fleet is None:  # not before the first pass: what they import would delay that
            # One after the other: requests as old as Ubuntu 22.04's, imported beside something else, may wait for ever.
            self._fleet = self._open_fleet()
            self._start("metadata")
        self._picture.see_devices(outcome)
        if not isinstance(outcome, TpuAgentError):
            self._fleet.see_devices(self._picture.devices_for_containers())

    def _take_metadata(self, seen: Seen) -> None:
        self._workers["metadata"].heard()
        match seen:
            case EnvironmentSeen():
                self._picture.note("environment", seen.error or None)
            case PlaceSeen(gke):
                self._settle_place(gke=gke)
            case TpuEnvSeen():
                self._picture.tpu_env = seen

    def _settle_place(self, *, gke: bool) -> None:
        if gke != self._picture.gke:
            self._picture.gke = gke
            if self._fleet:  # it is there: the metadata worker starts with it
                self._fleet.see_place(gke=gke)

    # Publishing ---------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        starting = not self._ready and self._picture.starting
        document = self._picture.document(
            self._config, starting=starting, pid=os.getpid(), started_ticks=self._started_ticks
        )
        if document != self._published:
            try:
                status.write_status(self._host, document)
            except OSError as fault:
                log.warning("status_not_written", reason=str(fault))
            if document["summary"] != self._published.get("summary"):
                self._manager.status(document["summary"])
            self._published = document
        if starting:
            return
        if not self._ready:
            self._ready = True
            self._manager.ready()
            log.info("agent_ready", state=document["state"], summary=document["summary"])
            if self._picture.place_is_unknown:
                # No answer in all that time, and containers must not wait for ever; for a server that answers they do.
                self._settle_place(gke=False)


def _container_worker(name: str) -> str:
    return f"container {name}"
