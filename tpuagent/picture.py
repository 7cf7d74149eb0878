"""What does the agent know of its host? What its workers have told it, and the status document that is made of it."""

from __future__ import annotations

import time

from tpuagent import status
from tpuagent.config import Config
from tpuagent.containers.spec import ContainerSeen, Devices
from tpuagent.devices.report import Pass, Report
from tpuagent.errors import TpuAgentError
from tpuagent.log import get_logger
from tpuagent.metadata.seen import TpuEnvSeen

log = get_logger()


class Picture:
    """The last that was told of each thing. `ready_wait_s`: how long tpu-env is awaited before the host is called up.

    `boot` tells this boot from others. `gke` None: nobody knows yet whether this is a node of Google Kubernetes Engine.
    """

    def __init__(self, ready_wait_s: float, boot: str = "") -> None:
        self.tpu_env: TpuEnvSeen | None = None
        self.gke: bool | None = None
        self.containers: dict[str, ContainerSeen] = {}
        self._boot = boot
        self._seen: Pass | None = None
        self._troubles: dict[str, str] = {}
        self._awaited_until = time.monotonic() + ready_wait_s

    def see_devices(self, outcome: Pass | TpuAgentError) -> None:
        """A device pass is over, or could not be made; what it changed is logged."""
        if isinstance(outcome, TpuAgentError):
            self.note("pass", str(outcome))
            return
        self.note("pass", None)
        _log_changes(self._seen, outcome)
        self._seen = outcome

    def note(self, of: str, what: str | None) -> None:
        """Note or clear a fault of the agent's own work; logged when it changes."""
        if what != self._troubles.get(of):
            if what:
                log.warning("trouble_began", of=of, reason=what)
            else:
                log.info("trouble_ended", of=of)
        self._troubles.pop(of, None)
        if what:
            self._troubles[of] = what

    @property
    def starting(self) -> bool:
        """Whether the first pass is not over, or tpu-env is awaited still."""
        if self._seen is None:
            return "pass" not in self._troubles
        return not self._tpu_env_settled and self.wait_s > 0

    @property
    def wait_s(self) -> float:
        """How long tpu-env is awaited from now on."""
        # Without a TPU there is nothing that tpu-env could tell something about.
        awaited = self._seen is not None and self._seen.has_tpus
        return max(0.0, self._awaited_until - time.monotonic()) if awaited else 0.0

    @property
    def place_is_unknown(self) -> bool:
        """Whether no server has said, and none will soon, what kind of host this is."""
        return self.gke is None and not self._tpu_env_settled

    @property
    def _tpu_env_settled(self) -> bool:
        return self.tpu_env is not None and self.tpu_env.settled

    def devices_for_containers(self) -> Devices:
        """What one wing sees, in the terms of another."""
        if self._seen is None:
            return Devices()
        if not self._seen.reports:
            nodes = frozenset(self._seen.accel_nodes)
            return Devices(bool(nodes), "" if nodes else "this host has no TPU functions", nodes, expected=bool(nodes))
        ready = [report.function for report in self._seen.reports if report.state == "ready"]
        missing = sum(report.state not in ("ready", "released") for report in self._seen.reports)
        reason = f"{missing or 'all'} of {len(self._seen.reports)} TPU functions are not usable"
        # Not their times: udev renews them at each event. Another boot makes others, which may have the same numbers.
        nodes = frozenset(f"{node.path}={self._boot}.{node.inode}" for function in ready for node in function.nodes)
        return Devices(bool(ready) and not missing, reason, nodes)

    def document(self, config: Config, *, starting: bool, pid: int, started_ticks: str) -> status.Document:
        """All of it, as people and programs are told."""
        tpu_env = self.tpu_env
        if tpu_env is None and self._seen and not starting:
            why = "the metadata server has not answered yet"
            tpu_env = TpuEnvSeen("unreachable", config.metadata.tpu_env.path, why)
        return status.build_status(
            self._seen,
            list(self._troubles.values()),
            tpu_env=tpu_env,
            containers=self._containers_in_order(config),
            starting=starting,
            pid=pid,
            started_ticks=started_ticks,
        )

    def _containers_in_order(self, config: Config) -> list[ContainerSeen]:
        """As the configuration names them; those that no worker has told of yet are about to be started."""
        expected = self._seen is not None and self._seen.has_tpus
        untold = {
            spec.name: ContainerSeen(
                spec.name,
                "off" if spec.off else "starting",
                image=spec.image,
                required=spec.required,
                expected=expected or not spec.needs_devices,
            )
            for spec in config.containers.specs
        }
        return list({**untold, **self.containers}.values())


def _log_changes(before: Pass | None, now: Pass) -> None:
    """One line for each function that came, went or changed its state."""
    old = {report.function.address: report for report in before.reports} if before else {}
    for report in now.reports:
        was = old.pop(report.function.address, None)
        if report.steps or was is None or (was.state, was.reason) != (report.state, report.reason):
            _log_report(report)
    for address in old:
        log.info("function_gone", address=address)
    known = {str(error) for error in before.errors} if before else set()
    for error in now.errors:
        if str(error) not in known:
            log.warning("pass_incomplete", reason=str(error))


def _log_report(report: Report) -> None:
    function = report.function
    facts = {
        "address": function.address,
        "generation": function.generation.name,
        "driver": function.driver,
        "group": function.group,
        "steps": len(report.steps),
    }
    event = "function_" + report.state.replace("-", "_")
    reason = str(report.error) if report.error else report.reason
    if report.state in ("ready", "released") and not report.error:
        log.info(event, **facts)
    else:
        log.warning(event, **facts, reason=reason)
