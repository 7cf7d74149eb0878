"""What does an operator do with a container? The commands' part: it works with and without the agent.

With the agent, these only say what is wanted and end what runs; the agent starts a container when its TPU functions are
usable, and makes it anew when it has to be another one. Whoever changes a container holds its lock.
"""

from __future__ import annotations

from tpuagent.containers.creation import NAME_LABEL, engine_name, is_ours
from tpuagent.containers.engine import Engine
from tpuagent.containers.objects import Container
from tpuagent.containers.records import Record, lock_file, parse_record, record_file, render_record
from tpuagent.containers.sockets import find_socket
from tpuagent.containers.spec import ContainerSeen, Policy, Spec
from tpuagent.errors import NameTaken, NoSuchContainer, UsageError
from tpuagent.filelock import FileLock
from tpuagent.host import Host
from tpuagent.values import replace

_ALIVE = frozenset({"running", "restarting", "paused"})
# Beyond the time that the container is given to end.
_LOCK_S = 60.0


class Operator:
    """The containers of this host, in the hands of a person."""

    def __init__(self, host: Host, policy: Policy) -> None:
        self._host = host
        self._policy = policy
        self._engine = Engine(host.at(find_socket(host, policy)))

    @property
    def engine(self) -> Engine:
        """What runs them."""
        return self._engine

    def look(self) -> list[ContainerSeen]:
        """The configured containers, and those of an earlier configuration, as the engine sees them now."""
        found = {container.label(NAME_LABEL): container for container in self._engine.containers(NAME_LABEL)}
        specs = {spec.name: spec for spec in self._policy.specs}
        return [self._seen(specs.get(name, Spec(name)), found.get(name)) for name in dict.fromkeys((*specs, *found))]

    def stop(self, name: str) -> bool:
        """End it and keep it ended until `restart` or the next boot; whether it ran."""
        spec = self._spec(name)
        with self._lock(spec):
            container = self._ours(name)
            self._remember(name, replace(self._record(name), stopped=True))
            return self._end(container, spec)

    def want(self, name: str) -> None:
        """Let the agent start it again, whatever has failed before."""
        with self._lock(self._spec(name)):
            self._remember(name, Record(stopped=False, asked=self._record(name).asked + 1))

    def start(self, name: str) -> None:
        """Start it here and now, since no agent will."""
        with self._lock(self._spec(name)):
            container = self._ours(name)
            if container is None:
                why = "it has not been made yet, which is the agent's work: systemctl start tpu-agent"
                raise NoSuchContainer(f"start {name}", why)
            self._engine.start(container.id)

    def remove(self, names: list[str]) -> list[str]:
        """End and remove these, or all that the agent has made; their names."""
        found = [container.label(NAME_LABEL) for container in self._engine.containers(NAME_LABEL)]
        for name in names:
            if name not in found:
                raise NoSuchContainer(f"remove {name}", f"the agent has made none; it has {', '.join(found) or 'none'}")
        removed = []
        for name in names or found:
            spec = next((spec for spec in self._policy.specs if spec.name == name), Spec(name))
            with self._lock(spec):
                if container := self._ours(name):
                    self._end(container, spec)
                    self._engine.remove(container.id, force=True)
                    removed.append(name)
        return removed

    def find(self, name: str) -> Container:
        """The container, running or not."""
        container = self._ours(name)
        if container is None:
            self._spec(name)
            raise NoSuchContainer(f"look at {name}", "it has not been made yet; see: tpuagent containers")
        return container

    def _spec(self, name: str) -> Spec:
        for spec in self._policy.specs:
            if spec.name == name:
                return spec
        known = ", ".join(spec.name for spec in self._policy.specs)
        raise UsageError(f"find container {name}", f"there is none of that name; there are {known}")

    def _ours(self, name: str) -> Container | None:
        container = self._engine.container(engine_name(name))
        if container and not is_ours(container, name):
            why = f"container {container.name} is not the agent's ({container.id[:12]}, from {container.image})"
            raise NameTaken(f"touch {container.name}", why)
        return container

    def _end(self, container: Container | None, spec: Spec) -> bool:
        runs = container is not None and container.state in _ALIVE
        if container and runs:
            self._engine.stop(container.id, spec.stop_grace_s)
        return runs

    def _lock(self, spec: Spec) -> FileLock:
        return self._host.lock(lock_file(spec.name), _LOCK_S + spec.stop_grace_s)

    def _record(self, name: str) -> Record:
        return parse_record(self._host.read(record_file(name)))

    def _remember(self, name: str, record: Record) -> None:
        self._host.replace(record_file(name), render_record(record))

    def _seen(self, spec: Spec, container: Container | None) -> ContainerSeen:
        stopped = self._record(spec.name).stopped
        image, state = spec.image, "off" if spec.off else "stopped" if stopped else "not made"
        if container is None:
            return ContainerSeen(spec.name, state, image=image)
        reason = container.error or ("" if container.state in _ALIVE else f"it ended with {container.exit_code}")
        state = "stopped" if stopped and container.state not in _ALIVE else container.state
        started_at = container.started_at if container.pid else ""
        return ContainerSeen(spec.name, state, reason, container.image, "", container.id, started_at)
