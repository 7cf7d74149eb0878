"""A fleet at work on an engine in a folder, and what it has told."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.containers.looks import USABLE
from tests.fakes.engine import FakeEngine
from tests.fakes.engine_words import Words
from tpuagent.containers.engine import Engine
from tpuagent.containers.fleet import Fleet
from tpuagent.containers.http import Limits
from tpuagent.containers.spec import VBAR, ContainerSeen, Policy, Spec
from tpuagent.containers.supervisor import Supervisor
from tpuagent.errors import NoSuchKey
from tpuagent.host import Host

SOON_S = 10.0
TOKEN = "ya29.test"  # noqa: S105  of nobody
QUICK = Limits(answer_s=1.0)
LISTENS = "  sl  local\n   0: 00000000:20A1 00000000:0000 0A 0:0 0:0 0 0 0 55 1\n"


class Account:
    """This machine for a registry. `token_text` None: it has none."""

    def __init__(self) -> None:
        self.token_text: str | None = TOKEN

    def token(self) -> str:
        """As the service account's."""
        if self.token_text is None:
            raise NoSuchKey("use the VM's service account", "this VM has none")
        return self.token_text

    def describe(self) -> str:
        """As the service account's."""
        return "it was asked as robot@example; give it a role"


class Work:
    """A fleet in its threads. `told` is what it has told so far."""

    def __init__(self, host: Host, policy: Policy) -> None:
        self.host = host
        self.account = Account()
        self.told: list[ContainerSeen] = []
        self._changed = threading.Condition()
        self._supervisors: list[Supervisor] = []
        self._threads: list[threading.Thread] = []
        self.fleet = Fleet(host, policy, self.account, self._tell, self._hire, lambda path: Engine(path, QUICK))

    def start(self) -> None:
        """As the agent does after its first pass."""
        self._run(self.fleet.run)
        self.fleet.start()
        self.fleet.see_devices(USABLE)
        self.fleet.see_place(gke=False)

    def stop(self) -> float:
        """As the agent does; seconds until all threads have ended."""
        began = time.monotonic()
        self.fleet.stop()
        for supervisor in self._supervisors:
            supervisor.stop()
        for thread in self._threads:
            thread.join(SOON_S)
            assert not thread.is_alive()
        return time.monotonic() - began

    def until(self, state: str, name: str = "vbar", since: int = 0) -> ContainerSeen:
        """The first thing that was told of a container, from number `since` on, in this state."""

        return self._until(lambda one: one.name == name and one.state == state, since)

    def until_new(self, before: str, name: str = "vbar") -> ContainerSeen:
        """The first time that another container of the name runs than the one with this id."""
        return self._until(lambda one: one.name == name and one.state == "running" and one.id != before, 0)

    def until_restarted(self, times: int = 1, name: str = "vbar") -> ContainerSeen:
        """The first time that a container runs after so many ends: no late look at an earlier run."""
        return self._until(lambda one: (one.name, one.state, one.restarts) == (name, "running", times), 0)

    def until_reason(self, part: str, since: int = 0) -> ContainerSeen:
        """The first thing that was told for a reason with this in it."""
        return self._until(lambda one: part in one.reason, since)

    def last(self, name: str = "vbar") -> ContainerSeen:
        """What was told of a container last."""
        return next(one for one in reversed(self.told) if one.name == name)

    def mark(self) -> int:
        """For `since`."""
        return len(self.told)

    def _until(self, is_it: Callable[[ContainerSeen], bool], since: int) -> ContainerSeen:
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(is_it, self.told[since:])), SOON_S), self.told[since:]
            return next(filter(is_it, self.told[since:]))

    def _tell(self, seen: ContainerSeen) -> None:
        with self._changed:
            self.told.append(seen)
            self._changed.notify_all()

    def _hire(self, supervisor: Supervisor) -> None:
        self._supervisors.append(supervisor)
        self._run(supervisor.run)

    def _run(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()


@contextmanager
def place() -> Iterator[Host]:
    """A host whose paths are short enough for sockets; somebody listens on vBar's port."""
    folder = tempfile.mkdtemp()
    host = Host(folder)
    for path in ("run", "proc/net"):
        os.makedirs(f"{folder}/{path}")
    listen(host)
    try:
        yield host
    finally:
        shutil.rmtree(folder)


def listen(host: Host, *, on: bool = True) -> None:
    """Let somebody listen on vBar's port, or nobody."""
    host.replace("/proc/net/tcp", LISTENS if on else "")


@contextmanager
def engine_on(host: Host, words: Words | None = None, socket: str = "/run/docker.sock") -> Iterator[FakeEngine]:
    """An engine at its usual place."""
    os.makedirs(os.path.dirname(host.at(socket)), exist_ok=True)
    with FakeEngine(host.at(socket), words) as engine:
        yield engine


@contextmanager
def at_work(host: Host, *specs: Spec) -> Iterator[Work]:
    """A fleet that is stopped in the end. Without specs: vBar without a probe, so that its port may be taken."""
    work = Work(host, Policy(specs or (VBAR,)))
    work.start()
    with contextlib.ExitStack() as ending:
        ending.callback(work.stop)
        yield work
