"""When is the metadata looked at again? Waits for the server and for changes, and tells what it saw: a worker's job."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from queue import Empty, Queue

from tpuagent.errors import BadAnswer, ServerUnreachable
from tpuagent.host import Host
from tpuagent.log import get_logger
from tpuagent.metadata.answers import Answer, Backoff, Found, Interrupted, next_delay_s
from tpuagent.metadata.environment_file import keep_environment
from tpuagent.metadata.policy import Policy
from tpuagent.metadata.refresh import KEY, apply, configured_host, is_gke, is_google
from tpuagent.metadata.seen import EnvironmentSeen, PlaceSeen, Seen, TpuEnvSeen
from tpuagent.metadata.server import MetadataServer
from tpuagent.metadata.tpuenv import TpuEnv
from tpuagent.values import dataclass

# A request that the server holds and drops at the end, at its address and then at its name, and the pause after it.
LONGEST_SILENCE_S = 2 * (60 + 10) + 60

RETRY = Backoff(first_s=0.25, most_s=10.0)
ABSENT = Backoff(first_s=5.0, most_s=60.0)

log = get_logger()


@dataclass(frozen=True)
class Pace:
    """How often the watch asks, in seconds.

    `hang_s`: how long the server may hold one request until there is a change; with its answer, a change or not, the
    file is compared too. `retry`: while the server is away. `absent`: while there is no such key, for which it does not
    hold requests. `quick_s`: an answer without a change that comes sooner was not held either.
    """

    hang_s: int = 60
    retry: Backoff = RETRY
    absent: Backoff = ABSENT
    quick_s: float = 1.0


class MetadataWatch:
    """Keeps tpu-env and /etc/environment true until it is told to stop.

    `tell` gets what every look found, at least every `LONGEST_SILENCE_S`; it is called in the thread that runs `run`.
    """

    def __init__(
        self,
        host: Host,
        policy: Policy,
        server: MetadataServer,
        tell: Callable[[Seen], None],
        pace: Pace = Pace(),
        *,
        expected: bool | None = None,
    ) -> None:
        self._host = host
        self._policy = policy
        self._server = server
        self._tell = tell
        self._pace = pace
        # Whether there is a server to wait for. The firmware knows, or somebody has configured one.
        self._expected = expected if expected is not None else bool(configured_host()) or is_google(host)
        self._asked: Queue[Policy | None] = Queue()
        self._etag: str | None = None
        self._content: TpuEnv | None = None
        self._body: bytes | None = None
        self._failures = self._idle = self._place_failures = 0
        self._said: TpuEnvSeen | None = None
        self._lost = False
        self._placed = False

    def follow(self, policy: Policy) -> None:
        """Let the next look, which comes at once, want something else. From any thread."""
        self._asked.put(policy)
        self._server.interrupt()

    def stop(self) -> None:
        """Let `run` return at once. From any thread."""
        self._asked.put(None)
        self._server.interrupt()

    def run(self) -> None:
        """The environment first, since it needs no server; then the server for ever."""
        self._keep_environment()
        while True:
            try:
                delay_s = self._look() if self._expected else self._not_here()
            except Interrupted:
                delay_s = 0.0
            if not self._pause(delay_s):
                return

    # One look -----------------------------------------------------------------------------------------------------

    def _look(self) -> float:
        """Ask the server, apply the answer, tell; seconds until the next look. Raises Interrupted."""
        began = time.monotonic()
        try:
            answer = self._ask()
        except ServerUnreachable as fault:
            return self._not_reached(fault)
        except BadAnswer as fault:
            self._reached()
            self._etag = None
            self._say(TpuEnvSeen("bad", self._policy.tpu_env.path, fault.why, self._content))
            delay_s = self._delay(self._pace.absent, 1)
        else:
            self._reached()
            delay_s = self._take(answer, took_s=time.monotonic() - began)
        if self._find_place():
            return delay_s
        self._etag = None  # containers wait for the place: it must not wait for a request that the server holds
        return self._delay(self._pace.retry, self._place_failures)

    def _ask(self) -> Answer:
        if self._etag is None:
            return self._server.get(KEY)
        query = {"wait_for_change": "true", "last_etag": self._etag, "timeout_sec": str(self._pace.hang_s)}
        return self._server.get(KEY, query, hang_s=self._pace.hang_s)

    def _take(self, answer: Answer, took_s: float) -> float:
        seen = apply(self._host, self._policy.tpu_env, answer, self._content)
        self._content = seen.content
        self._say(seen)
        etag, body = (answer.etag, answer.body) if isinstance(answer, Found) else (None, None)
        # At once only after news or after a request that the server has held: anything else would spin.
        held = etag is not None and (body != self._body or took_s >= self._pace.quick_s)
        self._idle = 0 if held else self._idle + 1
        self._etag, self._body = etag, body
        return self._delay(self._pace.absent, self._idle)

    def _not_reached(self, fault: ServerUnreachable) -> float:
        self._etag = None  # the server that comes back may be another one
        self._failures += 1
        if not self._lost:
            self._lost = True
            log.warning("metadata_server_lost", reason=fault.why)
        self._tell(TpuEnvSeen("unreachable", self._policy.tpu_env.path, str(fault), self._content))
        return self._delay(self._pace.retry, self._failures)

    def _find_place(self) -> bool:
        """Find out what kind of host this is, once: a host does not become another one. Whether it is known."""
        if self._placed:
            return True
        try:
            gke = is_gke(self._server)
        except (ServerUnreachable, BadAnswer) as fault:
            self._place_failures += 1
            if self._place_failures == 1:
                log.warning("place_unknown", reason=str(fault))
            return False
        self._placed = True
        self._tell(PlaceSeen(gke))
        return True

    def _not_here(self) -> float:
        if not self._placed:
            self._placed = True
            self._tell(PlaceSeen(gke=False))
        why = "this is no Google host; to look all the same, set GCE_METADATA_HOST for the service"
        self._say(TpuEnvSeen("not-google", self._policy.tpu_env.path, why))
        return float(self._pace.hang_s)

    def _reached(self) -> None:
        if self._lost:
            log.info("metadata_server_found", failures=self._failures)
        self._lost = False
        self._failures = 0

    def _delay(self, backoff: Backoff, failures: int) -> float:
        return next_delay_s(backoff, failures) * random.uniform(0.5, 1.0)  # noqa: S311  no secret: it spreads requests

    def _keep_environment(self) -> None:
        self._say(keep_environment(self._host, self._policy.environment))

    # Waiting and telling ------------------------------------------------------------------------------------------

    def _pause(self, delay_s: float) -> bool:
        """Wait until the next look is due or until asked for something; False when asked to stop."""
        try:
            asked = self._asked.get(timeout=delay_s)
            while asked is not None:
                self._policy = asked
                self._etag = self._body = None
                try:
                    asked = self._asked.get_nowait()
                except Empty:
                    self._keep_environment()
                    return True
            return False
        except Empty:
            return True

    def _say(self, seen: TpuEnvSeen | EnvironmentSeen) -> None:
        """Tell, and write a log line when it is not what was seen last."""
        self._tell(seen)
        if isinstance(seen, EnvironmentSeen):
            _log_environment(seen)
            return
        before, self._said = self._said, seen
        same = before and (before.good, before.reason, before.content) == (seen.good, seen.reason, seen.content)
        if seen.state == "written" or not same:
            _log_tpu_env(seen)
        if seen.left_out and (before is None or before.left_out != seen.left_out):
            for entry in seen.left_out:
                log.warning("tpu_env_entry_left_out", name=entry.name, line=entry.line, reason=entry.why)


def _log_tpu_env(seen: TpuEnvSeen) -> None:
    event = f"tpu_env_{seen.state}"
    if seen.good:
        facts = {"path": seen.path, "accelerator_type": seen.accelerator_type, "worker_id": seen.worker_id}
        log.info(event, **facts)
        if seen.reason:
            log.warning("tpu_env_owner_unknown", reason=seen.reason)
    elif seen.state in ("absent", "not-google"):
        log.info(event.replace("-", "_"), reason=seen.reason)
    else:
        log.warning(event, path=seen.path, reason=seen.reason)


def _log_environment(seen: EnvironmentSeen) -> None:
    if seen.error or seen.edit is None:
        log.warning("environment_failed", reason=seen.error)
        return
    for change in seen.edit.changes:
        log.info("environment_changed", change=change)
    for reason in seen.edit.kept:
        log.info("environment_value_kept", reason=reason)
    for reason in seen.edit.odd:
        log.warning("environment_odd", reason=reason)
