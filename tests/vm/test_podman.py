"""On a Google host with Podman and no Docker: does vBar run, and keep running? One guest, of Debian 12."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import image, scenery
from .agent import UNIT, Journal
from .guest import Guest
from .machine import Machine
from .progress import Say
from .recipe import BOOKWORM
from .stage import VBAR, Stage

SLOW_S = 300
GOOD = "2 of 2 v6e functions ready; tpu-env, v6e-8, worker 0; vbar running"


@pytest.fixture(scope="module")
def stage(package: Path, say: Say) -> Iterator[Stage]:
    """A host from power-on."""
    chosen = image.containers_image(BOOKWORM, package, scenery.PODMAN, say)
    with Guest(chosen, Machine(("v6e", "v6e"), memory_mib=3072), name="bookworm-podman", say=say) as host:
        follow = host.start(["journalctl", "--boot", "--unit", UNIT, "--follow", "--output=cat", "--lines=all"])
        follow.wait_for("container_running container=vbar", SLOW_S)
        follow.kill()
        follow.wait()
        yield Stage(host)


def inspect(stage: Stage) -> dict[str, object]:
    """What Podman says of vBar."""
    found: dict[str, object] = json.loads(stage.guest.check(["podman", "inspect", VBAR], timeout_s=SLOW_S))[0]
    return found


def test_from_power_on_it_runs_and_was_pulled_with_the_token(stage: Stage) -> None:
    assert stage.await_status(GOOD) == GOOD
    assert stage.listens()
    asked = [who for _, path, who, _ in stage.requests() if "/manifests/" in path]
    assert (asked[0], asked[-1]) == ("anonymous", "account")
    assert stage.vbar()["memlock"] == "unlimited"
    inside = stage.guest.check(["podman", "exec", VBAR, "busybox", "ls", "/dev/vfio"], timeout_s=SLOW_S).split()
    assert sorted(inside) == sorted(stage.guest.check(["ls", "/dev/vfio"]).split())


def test_after_a_crash_it_is_back(stage: Stage) -> None:
    before = stage.vbar()
    stage.after(
        lambda: stage.ask("crash 3"), "container_ended container=vbar code=3", "container_running", timeout_s=SLOW_S
    )
    assert stage.vbar()["id"] == before["id"]


def test_killed_with_9_the_agent_adopts_it(stage: Stage) -> None:
    before, pulls = inspect(stage)["Id"], stage.pulls()
    kill = ["systemctl", "kill", "--signal=KILL", UNIT]
    stage.after(lambda: stage.guest.check(kill), "agent_ready", "container_running", timeout_s=SLOW_S)
    assert (inspect(stage)["Id"], stage.pulls()) == (before, pulls)


def test_functions_that_are_bound_anew_get_a_new_container(stage: Stage) -> None:
    before = inspect(stage)["Id"]
    address = stage.guest.address(0)
    stage.guest.check(["tpuagent", "unbind", address])
    journal = Journal(stage.guest)
    stage.guest.check(["tpuagent", "bind", address])
    journal.wait_for("container_stopping", SLOW_S)
    journal.wait_for("container_running", SLOW_S)
    assert inspect(stage)["Id"] != before


def test_an_operator_stops_reads_and_restarts_it(stage: Stage) -> None:
    guest = stage.guest
    assert "stand-in started" in guest.run(["tpuagent", "containers", "logs", "vbar"], timeout_s=SLOW_S).stderr
    guest.check(["tpuagent", "containers", "stop", "vbar"], timeout_s=SLOW_S)
    assert not stage.listens()
    assert guest.check(["tpuagent", "containers", "restart", "vbar"], timeout_s=SLOW_S).startswith("vbar runs")
