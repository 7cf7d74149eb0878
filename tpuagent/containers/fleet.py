"""Which containers are kept, and by whom? Watches the engine, and has a supervisor for each container."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from tpuagent.containers.creation import NAME_LABEL, engine_name
from tpuagent.containers.engine import Engine
from tpuagent.containers.images import Account
from tpuagent.containers.lifecycle import describe_oom
from tpuagent.containers.objects import EngineEvent
from tpuagent.containers.sockets import docker_pid, find_socket, is_stopping
from tpuagent.containers.spec import ContainerSeen, Devices, Policy, Situation, Spec
from tpuagent.containers.supervisor import Supervisor
from tpuagent.errors import EngineUnavailable, TpuAgentError
from tpuagent.host import Host
from tpuagent.log import get_logger
from tpuagent.values import replace

FIRST_RETRY_S, MOST_RETRY_S = 0.25, 2.0
STOPPED = "Docker has stopped; start it with: systemctl start docker"

log = get_logger()


class Fleet:
    """All containers of the configuration, and those that the agent made by an earlier one.

    `tell` gets what every supervisor sees. `hire` is given each new supervisor, to be run in a thread of its own.
    """

    def __init__(
        self,
        host: Host,
        policy: Policy,
        account: Account,
        tell: Callable[[ContainerSeen], None],
        hire: Callable[[Supervisor], None],
        open_engine: Callable[[str], Engine] = Engine,
    ) -> None:
        self._host = host
        self._policy = policy
        self._account = account
        self._tell = tell
        self._hire = hire
        self._open_engine = open_engine
        self._lock = threading.Lock()  # of what follows: the agent's loop and the engine's thread both change it
        self._common = Situation(Spec(""))
        self._supervisors: dict[str, Supervisor] = {}
        self._specs = {spec.name: spec for spec in policy.specs}
        self._stopped = threading.Event()
        self._engine: Engine | None = None
        self._met_docker = False

    # What the agent says; from its loop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Hire a supervisor for each container."""
        with self._lock:
            for name in self._specs:
                self._ensure(name)

    def follow(self, policy: Policy) -> None:
        """Other containers, or the same ones otherwise. One that is configured no more is ended and removed."""
        with self._lock:
            moved = policy.socket != self._policy.socket
            self._policy = policy
            self._specs = {spec.name: spec for spec in policy.specs}
            for name in (*self._specs, *self._supervisors):
                self._ensure(name)
            self._advise_all()
        if moved and (engine := self._engine):
            engine.interrupt()

    def see_devices(self, devices: Devices) -> None:
        """The TPU functions are this now."""
        self._change(devices=devices)

    def see_place(self, *, gke: bool) -> None:
        """Whether this is a node of Google Kubernetes Engine."""
        self._change(gke=gke)

    def stop(self) -> None:
        """Let `run` return at once, and every supervisor's too. Containers run on. From any thread."""
        self._stopped.set()
        if engine := self._engine:
            engine.interrupt()

    # The engine; in a thread of its own ---------------------------------------------------------------------------

    def run(self) -> None:
        """Watch the engine: whether it answers, and what it tells of containers."""
        failures = 0
        while self._await_work():
            met, why = self._watch()
            failures = 0 if met else failures + 1
            self._away(why)
            self._stopped.wait(min(MOST_RETRY_S, FIRST_RETRY_S * 2 ** min(failures, 8)))
            if met:
                self._await_return()

    def _await_work(self) -> bool:
        """Wait while nothing is to run and no Docker runs that may have something left: no engine is woken for that."""
        while all(spec.off for spec in self._specs.values()) and not docker_pid(self._host):
            if self._stopped.wait(MOST_RETRY_S):
                break
        return not self._stopped.is_set()

    def _watch(self) -> tuple[bool, str]:
        """Follow the engine's events to their end: whether it answered at all, and why they ended."""
        met = False
        try:
            socket = find_socket(self._host, self._policy)
            self._engine = engine = self._open_engine(self._host.at(socket))
            with engine.events() as events:
                info = engine.info()
                met = True
                self._met_docker = bool(docker_pid(self._host))
                log.info("engine_found", engine=info.name, version=info.version, api=info.api, socket=socket)
                self._change(socket=self._host.at(socket), away="")
                self._adopt_strangers(engine)
                for event in events:
                    log.debug("engine_event", action=event.action, container=event.name)
                    self._wake(event)
        except EngineUnavailable as fault:
            return met, fault.why
        except TpuAgentError as fault:  # it answers, with errors
            return met, str(fault)
        return met, "its events have ended"

    def _await_return(self) -> None:
        """Docker that was stopped on purpose stays so: a connection would let systemd start it again."""
        while self._met_docker and not self._stopped.wait(FIRST_RETRY_S):
            if not docker_pid(self._host):
                self._away(STOPPED)
            elif not is_stopping(self._host):
                return

    def _away(self, why: str) -> None:
        if self._common.socket is not None or self._common.away != why:
            log.warning("engine_away", reason=why)
            self._change(socket=None, away=why)

    def _adopt_strangers(self, engine: Engine) -> None:
        """Containers of the agent's that no configuration names any more get a supervisor too, which removes them."""
        for container in engine.containers(NAME_LABEL):
            name = container.label(NAME_LABEL)
            if container.name == engine_name(name):
                with self._lock:
                    self._ensure(name)

    # Supervisors --------------------------------------------------------------------------------------------------

    def _ensure(self, name: str) -> None:
        if name not in self._supervisors:
            self._supervisors[name] = Supervisor(
                self._host, self._situation(name), self._account, self._tell, self._open_engine
            )
            self._hire(self._supervisors[name])

    def _situation(self, name: str) -> Situation:
        return replace(self._common, spec=self._specs.get(name, Spec(name)))

    def _change(self, **changes: Any) -> None:
        with self._lock:
            self._common = replace(self._common, **changes)
            self._advise_all()

    def _advise_all(self) -> None:
        for name, supervisor in self._supervisors.items():
            supervisor.follow(self._situation(name))

    def _wake(self, event: EngineEvent) -> None:
        with self._lock:
            for name, supervisor in self._supervisors.items():
                if engine_name(name) != event.name:
                    continue
                situation = self._situation(name)
                supervisor.follow(situation)
                if event.action == "oom":  # of any process in it: it may live on
                    log.warning("container_out_of_memory", container=name, reason=describe_oom(situation.spec))
