"""How is one container kept running? Looks, decides, does, and tells: a worker's loop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from queue import Empty, Queue

from tpuagent.containers import lifecycle
from tpuagent.containers.conflicts import find_conflict
from tpuagent.containers.creation import engine_name, render_creation
from tpuagent.containers.engine import Engine
from tpuagent.containers.images import Account, fetch
from tpuagent.containers.lifecycle import Action, Create, Decision, Fetch, Look, Memory, Remove, Start, Stop, Unpause
from tpuagent.containers.objects import Container
from tpuagent.containers.oom import OomKills
from tpuagent.containers.ports import listening_sockets
from tpuagent.containers.records import Record, lock_file, parse_record, record_file
from tpuagent.containers.sockets import is_stopping
from tpuagent.containers.spec import ContainerSeen, Situation
from tpuagent.containers.telling import Teller
from tpuagent.errors import DeadlinePassed, EngineUnavailable, TpuAgentError
from tpuagent.host import Host
from tpuagent.log import get_logger
from tpuagent.values import replace

# The longest that this worker is silent: an image from an archive tells nothing while it is loaded.
LONGEST_SILENCE_S = 900.0
PORT_S = 0.25
_LOCK_S = 30.0
# While the engine is away: its return is told, this is the net.
_AWAY_S = 5.0
_MOST_ACTIONS = 12

log = get_logger()


class Supervisor:
    """Keeps one container as its situation wants it until it is told to stop.

    `tell` gets what every look found, at least every `LONGEST_SILENCE_S`; it is called in the thread that runs `run`.
    """

    def __init__(
        self,
        host: Host,
        situation: Situation,
        account: Account,
        tell: Callable[[ContainerSeen], None],
        open_engine: Callable[[str], Engine] = Engine,
    ) -> None:
        self._host = host
        self._situation = situation
        self._account = account
        self._teller = Teller(host, tell)
        self._oom_kills = OomKills(host)
        self._open_engine = open_engine
        self._asked: Queue[Situation | None] = Queue()
        self._engine: Engine | None = None
        self._memory = Memory()
        self._record = Record()
        self._fetched = False
        self._awaits_port = False
        self._stopped = False

    longest_silence_s = LONGEST_SILENCE_S

    @property
    def name(self) -> str:
        """The container's name in the configuration."""
        return self._situation.spec.name

    def follow(self, situation: Situation) -> None:
        """Let the next look, which comes at once, be in this situation; also to say that it is time to look."""
        self._asked.put(situation)

    def stop(self) -> None:
        """Let `run` return at once. The container runs on. From any thread."""
        self._asked.put(None)
        if engine := self._engine:
            engine.interrupt()

    def run(self) -> None:
        """Look, do what is to be done, and wait for a reason to look again."""
        self._take(self._situation)
        while not self._stopped:
            self._pause(self._turn())

    def _pause(self, limit_s: float) -> None:
        """Wait until it is time to look, or for a reason to."""
        end = time.monotonic() + limit_s
        while self._awaits_port and (left_s := end - time.monotonic()) > 0:
            # Only the port is looked at meanwhile: an end is told by an event.
            if self._take_all(min(PORT_S, left_s)) or self._listening():
                return
        self._take_all(max(0.0, end - time.monotonic()))

    def _take_all(self, limit_s: float) -> bool:
        """Take what is asked within that time; whether anything was."""
        try:
            asked = self._asked.get(timeout=limit_s)
        except Empty:
            return False
        try:
            while True:
                if asked is None:
                    self._stopped = True
                    return True
                self._take(asked)
                asked = self._asked.get_nowait()
        except Empty:
            return True

    def _take(self, situation: Situation) -> None:
        if self._engine is None or situation.socket != self._situation.socket:
            self._engine = self._open_engine(situation.socket) if situation.socket else None
            # What ended while the engine was away says nothing of the container.
            self._memory = replace(self._memory, fresh=True)
        if situation.spec != self._situation.spec:
            self._memory = Memory(fresh=self._memory.fresh, restarts=self._memory.restarts)
        self._situation = situation

    # One turn -----------------------------------------------------------------------------------------------------

    def _turn(self) -> float:
        """Do all that can be done now; seconds until the next turn."""
        engine, spec = self._engine, self._situation.spec
        self._awaits_port = False
        if engine is None:
            state = "off" if spec.off else "no engine" if self._situation.away else "starting"
            self._say(state, "" if spec.off else self._situation.away)
            return lifecycle.PERIOD_S
        try:
            return self._act_until_quiet(engine)
        except EngineUnavailable as fault:
            if not self._stopped:
                self._memory = replace(self._memory, fresh=True)
                self._say("no engine", fault.why)
            return _AWAY_S
        except DeadlinePassed as fault:  # an operator's command is at work on it
            log.warning("container_locked", container=spec.name, reason=fault.why)
            return lifecycle.REMOVAL_S
        except TpuAgentError as fault:
            self._memory, decision = lifecycle.after_fault(self._memory, fault, time.monotonic(), _jitter())
            self._say(decision.state, decision.reason)
            return decision.wait_s

    def _act_until_quiet(self, engine: Engine) -> float:
        for _ in range(_MOST_ACTIONS):
            if is_stopping(self._host):
                raise EngineUnavailable("look at the containers", "Docker is stopping")
            with self._host.lock(lock_file(self.name), _LOCK_S):
                decision, container = self._look(engine)
                if decision.action is None:
                    self._awaits_port = decision.awaits_port
                    self._say(decision.state, decision.reason, container, engine)
                    return decision.wait_s
                if not isinstance(decision.action, Fetch):
                    self._act(engine, decision.action, decision)
                    continue
            # Not under the lock: it may take minutes, and an operator's command must not wait for it.
            self._fetch(engine, decision)
        return lifecycle.REMOVAL_S  # somebody works against it: not in a tight loop

    def _look(self, engine: Engine) -> tuple[Decision, Container | None]:
        spec = self._situation.spec
        record = parse_record(self._host.read(record_file(spec.name)))
        if record.asked != self._record.asked:
            self._memory = Memory(restarts=self._memory.restarts)
        self._record = record
        container = engine.container(engine_name(spec.name))
        starts = container is None or container.state not in ("running", "restarting", "paused")
        wanted = not spec.off and not record.stopped
        look = Look(
            container,
            self._situation.devices,
            conflict=find_conflict(self._host, engine, spec, gke=self._situation.gke is True)
            if starts and wanted
            else "",
            stopped=record.stopped,
            has_image=wanted and container is None and self._has_image(engine),
            listening=self._listening(),
            settled=self._situation.gke is not None,
            oom_kills=self._oom_kills.recent(time.monotonic()),
        )
        before = self._memory
        self._memory, decision = lifecycle.decide(spec, before, look, time.monotonic(), _jitter())
        if container and self._memory.restarts > before.restarts:
            end = lifecycle.describe_end(spec, container, oom_kills=look.oom_kills)
            log.warning(
                "container_ended",
                container=spec.name,
                code=container.exit_code,
                ran_s=round(container.ran_s),
                reason=end,
            )
        return decision, container

    def _listening(self) -> bool:
        port = self._situation.spec.probe_port
        return port is None or bool(listening_sockets(self._host, port))

    def _has_image(self, engine: Engine) -> bool:
        spec = self._situation.spec
        return (spec.pull != "always" or self._fetched) and engine.image(spec.image) is not None

    def _fetch(self, engine: Engine, decision: Decision) -> None:
        spec = self._situation.spec
        self._say("pulling", decision.reason or spec.image)
        fetch(self._host, engine, self._account, spec, self._progress)
        self._fetched = True

    def _progress(self, told: str) -> None:
        self._teller.progress(self._situation, told)

    def _act(self, engine: Engine, action: Action, decision: Decision) -> None:
        spec = self._situation.spec
        self._say(decision.state, decision.reason)
        match action:
            case Create():
                nodes = self._situation.devices.nodes if spec.needs_devices else ()
                engine.create(engine_name(spec.name), render_creation(spec, nodes))
                self._fetched = False
            case Start(identity):
                engine.start(identity)
                log.info("container_started", container=spec.name, id=identity[:12])
            case Stop(identity):
                log.info("container_stopping", container=spec.name, id=identity[:12], reason=decision.reason)
                engine.stop(identity, spec.stop_grace_s)
            case Remove(identity):
                engine.remove(identity, force=True)
                log.info("container_removed", container=spec.name, id=identity[:12])
            case Unpause(identity):
                engine.unpause(identity)

    def _say(
        self, state: str, reason: str = "", container: Container | None = None, engine: Engine | None = None
    ) -> None:
        self._teller.say(self._situation, self._memory.restarts, state, reason, container, engine)


def _jitter() -> float:
    return random.uniform(*lifecycle.JITTER)  # noqa: S311  no secret: it spreads requests
