"""On a Google host with Docker and the default configuration: does vBar run, and keep running, whatever happens?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import image, standins
from .agent import UNIT, Journal, await_ready
from .guest import Guest
from .machine import Machine
from .metadata import URL
from .progress import Say
from .recipe import Distribution
from .scenery import ARCHIVES
from .stage import VBAR, Stage

DROP_IN = "/etc/tpu-agent/config.d/90-test.yaml"
DEVICES = "2 of 2 v6e functions ready"
GOOD = f"{DEVICES}; tpu-env, v6e-8, worker 0; vbar running"
SLOW_S = 180  # an engine at work in an emulated guest
IMAGE = f"{standins.REGISTRY}/{standins.VBAR}:0.0.1"
TOKEN = "ya29.fake"  # noqa: S105  what the metadata server hands out


@pytest.fixture(scope="module")
def stage(distribution: Distribution, docker_image: image.BootImage, say: Say) -> Iterator[Stage]:
    """A host from power-on, which no hand has touched until vBar was there."""
    with Guest(
        docker_image, Machine(("v6e", "v6e"), memory_mib=3072), name=f"{distribution.name}-docker", say=say
    ) as host:
        follow = host.start(["journalctl", "--boot", "--unit", UNIT, "--follow", "--output=cat", "--lines=all"])
        follow.wait_for("container_running container=vbar", SLOW_S)
        follow.kill()
        follow.wait()
        yield Stage(host)


@contextmanager
def configured(stage: Stage, text: str, back: str = "container_running container=vbar") -> Iterator[Journal]:
    """Another configuration for a while. `back` is what the agent logs when all is as it was before."""
    journal = Journal(stage.guest)
    stage.guest.write(DROP_IN, text)
    stage.guest.check(["systemctl", "reload", UNIT])
    try:
        yield journal
    finally:
        stage.guest.check(["rm", DROP_IN])
        after = stage.after(lambda: stage.guest.check(["systemctl", "reload", UNIT]))
    after.wait_for(back, 120)


def restart_agent(stage: Stage, *logged: str) -> Journal:
    return stage.after(
        lambda: stage.guest.check(["systemctl", "restart", UNIT], timeout_s=SLOW_S),
        "agent_ready",
        *logged,
        timeout_s=SLOW_S,
    )


def test_from_power_on_it_runs_as_documented_after_chips_and_tpu_env(stage: Stage) -> None:
    assert stage.await_status(GOOD) == GOOD
    assert stage.listens()
    log = stage.guest.check(["journalctl", "--boot", "--unit", UNIT, "--output=cat"])
    order = [log.index(event) for event in ("function_ready", "tpu_env_written", "image_pulled", "container_running")]
    assert order == sorted(order)
    found = stage.inspect()
    assert found["Config"]["Image"] == "gcr.io/cloud-tpu-v2-images/vbar_control_agent:0.0.1"
    assert found["Config"]["Cmd"] == [
        "vbar_control_agent", "--logtostderr", "--gid=", "--uid=", "--chroot=", "--census_enabled=false",
        "--loas_pwd_fallback_in_corp",
    ]  # fmt: skip
    host = found["HostConfig"]
    assert (host["Privileged"], host["NetworkMode"]) == (True, "host")
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "10485760", "max-file": "3"}}
    inside = stage.guest.check(["docker", "exec", VBAR, "busybox", "ls", "/dev/vfio"]).split()
    assert sorted(inside) == sorted(stage.guest.check(["ls", "/dev/vfio"]).split())
    seen = stage.vbar()
    assert seen["memlock"] == "unlimited"
    assert seen["digest"] in found_digests(stage)
    assert seen["restarts"] == 0


def found_digests(stage: Stage) -> str:
    """What Docker says of where the image came from."""
    name = stage.inspect()["Image"]
    return stage.guest.check(["docker", "image", "inspect", "--format", "{{.RepoDigests}}", name])


def test_it_was_pulled_anonymously_first_and_then_with_the_token_which_is_nowhere(stage: Stage) -> None:
    asked = [who for _, path, who, _ in stage.requests() if "/manifests/" in path]
    assert asked[0] == "anonymous"
    assert asked[-1] == "account"
    assert TOKEN not in stage.guest.check("journalctl --boot --output=cat")
    places = "/root/.docker /etc/docker /run/tpu-agent /var/lib/tpu-agent /etc/tpu-agent /var/lib/docker/containers"
    assert stage.guest.run(f"grep -rl {TOKEN} {places} 2>/dev/null").stdout == ""
    assert (
        stage.guest.run(
            f"cat /proc/*/cmdline /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep '[y]{TOKEN[1:]}'"
        ).stdout
        == ""
    )


def test_after_a_crash_it_is_back_at_once_and_after_more_of_them_later_each_time(stage: Stage) -> None:
    before = stage.vbar()
    stage.after(lambda: stage.ask("crash 3"), "container_ended container=vbar code=3", "container_running")
    assert stage.vbar()["id"] == before["id"]
    assert stage.vbar()["restarts"] == before["restarts"] + 1
    log = stage.after(lambda: stage.ask("crash 3"), "container_back_off", "container_running").text()
    assert "attempt 3 0." in log
    assert stage.guest.check(["tpuagent", "containers", "logs", "vbar", "--lines", "1"]) == ""
    told = stage.guest.run(["tpuagent", "containers", "logs", "vbar", "--lines", "1"]).stderr
    assert told.startswith("stand-in started: --logtostderr --gid= --uid= ")


def test_killed_with_9_the_agent_finds_it_running_and_lets_it_run(stage: Stage) -> None:
    before, pulls = stage.inspect(), stage.pulls()
    stage.after(
        lambda: stage.guest.check(["systemctl", "kill", "--signal=KILL", UNIT]), "agent_ready", "container_running"
    )
    after = stage.inspect()
    assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])
    assert stage.pulls() == pulls


def test_an_upgrade_of_the_agent_lets_it_run(stage: Stage, package: Path) -> None:
    before = stage.inspect()
    stage.guest.put(package, f"/root/{package.name}")
    install = ["dpkg", "--install", f"/root/{package.name}"]
    stage.after(
        lambda: stage.guest.check(install, timeout_s=SLOW_S), "agent_ready", "container_running", timeout_s=SLOW_S
    )
    after = stage.inspect()
    assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])


def test_the_agent_stops_in_time_and_it_runs_on(stage: Stage) -> None:
    began = time.monotonic()
    stage.guest.check(["systemctl", "stop", UNIT], timeout_s=SLOW_S)
    assert time.monotonic() - began < 15
    assert stage.listens()
    assert "no agent runs" in stage.guest.run(["tpuagent", "containers"]).stderr
    assert "running" in stage.guest.check(["tpuagent", "containers"])
    stage.after(lambda: stage.guest.check(["systemctl", "start", UNIT], timeout_s=SLOW_S), "container_running")


def test_an_operator_stops_it_and_it_stays_stopped_until_it_is_wanted_again(stage: Stage) -> None:
    said = stage.guest.check(["tpuagent", "containers", "stop", "vbar"])
    assert said == "vbar is stopped; start it with: tpuagent containers restart vbar\n"
    assert not stage.listens()
    restart_agent(stage, "container_stopped")
    assert not stage.listens()
    assert "vbar stopped: by an operator" in stage.await_status("vbar stopped")
    before = stage.inspect()["State"]["StartedAt"]
    said = stage.guest.check(["tpuagent", "containers", "restart", "vbar"], timeout_s=SLOW_S)
    assert said.startswith("vbar runs, container ")
    assert stage.listens()
    assert stage.inspect()["State"]["StartedAt"] != before
    assert stage.vbar()["state"] == "running"


def test_when_docker_restarts_it_comes_back(stage: Stage) -> None:
    stage.after(
        lambda: stage.guest.check(["systemctl", "restart", "docker"], timeout_s=SLOW_S),
        "engine_away",
        "engine_found",
        "container_running",
        timeout_s=SLOW_S,
    )
    assert stage.await_status(GOOD) == GOOD


def test_docker_that_was_stopped_on_purpose_stays_so_and_the_agent_says_it_and_resumes(stage: Stage) -> None:
    stage.after(
        lambda: stage.guest.check(["systemctl", "stop", "docker"], timeout_s=SLOW_S),
        "engine_away",
        "Docker has stopped; start it with: systemctl start docker",
    )
    shown = stage.await_status("vbar no engine: Docker has stopped")
    assert shown.startswith(DEVICES)
    assert "vbar no engine: Docker has stopped" in shown
    assert stage.guest.run(["systemctl", "is-active", "docker"]).stdout.strip() == "inactive"
    stage.after(
        lambda: stage.guest.check(["systemctl", "start", "docker"], timeout_s=SLOW_S),
        "container_running",
        timeout_s=SLOW_S,
    )


def test_a_hanging_docker_hurts_nobody_and_is_found_again(stage: Stage) -> None:
    pid = stage.guest.check(["systemctl", "show", "--property=MainPID", "--value", "docker"]).strip()
    journal = Journal(stage.guest)
    stage.guest.check(["kill", "-STOP", pid])
    journal.wait_for("container_no_engine", SLOW_S)
    assert "vbar no engine" in stage.await_status("vbar no engine")
    assert stage.guest.run(["tpuagent", "devices"]).code == 0
    stage.after(lambda: stage.guest.check(["kill", "-CONT", pid]), "container_running")


def test_functions_that_are_bound_anew_get_a_new_container(stage: Stage) -> None:
    before = stage.inspect()["Id"]
    address = stage.guest.address(0)
    stage.guest.check(["tpuagent", "unbind", address])
    stage.after(lambda: stage.guest.check(["tpuagent", "bind", address]), "container_stopping", "container_running")
    assert stage.inspect()["Id"] != before
    inside = stage.guest.check(["docker", "exec", VBAR, "busybox", "ls", "/dev/vfio"]).split()
    assert sorted(inside) == sorted(stage.guest.check(["ls", "/dev/vfio"]).split())


def test_events_of_the_nodes_leave_it_alone(stage: Stage) -> None:
    before, nodes = stage.inspect(), f"stat -c %.Y /dev/vfio/{stage.guest.check('ls /dev/vfio').split()[0]}"
    times = stage.guest.check(nodes)
    stage.guest.check("udevadm trigger --action=change --subsystem-match=vfio; udevadm settle", timeout_s=SLOW_S)
    assert stage.guest.check(nodes) != times, "udev gives a node new times"
    restart_agent(stage, "container_running")
    after = stage.inspect()
    assert (after["Id"], after["State"]["StartedAt"]) == (before["Id"], before["State"]["StartedAt"])


def test_one_that_hangs_is_told_and_not_killed(stage: Stage) -> None:
    before = stage.inspect()["State"]["StartedAt"]
    stage.after(lambda: stage.ask("hang"), "container_silent", timeout_s=SLOW_S)
    assert "vbar silent: it runs, but nothing listens on port 8353" in stage.await_status("vbar silent")
    assert stage.inspect()["State"]["StartedAt"] == before
    assert stage.guest.check(["tpuagent", "containers", "restart", "vbar"], timeout_s=SLOW_S).startswith("vbar runs")


def test_one_that_wants_more_memory_than_it_may_have_is_told_as_such(stage: Stage) -> None:
    with configured(stage, "containers: {vbar: {memory: 32m}}\n") as journal:
        journal.wait_for("container_running", SLOW_S)
        killed = "reason='the kernel killed it (OOM): it wanted more than containers.vbar.memory allows"
        stage.after(lambda: stage.ask("leak"), killed, "container_running", timeout_s=SLOW_S)


def test_one_that_logs_without_end_is_capped(stage: Stage) -> None:
    with configured(stage, "containers: {vbar: {log_max_size: 100k, log_max_files: 2}}\n") as journal:
        journal.wait_for("container_running", SLOW_S)
        stage.ask("log")
        path = stage.inspect()["LogPath"]
        # The engine unlinks the older file before it renames the newer one: each may be missing for a moment.
        sizes = f"until found=$(stat -c %s {path} {path}.1 2>/dev/null); do sleep 0.1; done; echo $found"
        first = stage.guest.check(f"until stat -c %i {path}.1 2>/dev/null; do sleep 0.2; done", timeout_s=SLOW_S)
        again = f"until now=$(stat -c %i {path}.1 2>/dev/null) && [ $now != {first.strip()} ]; do sleep 0.1; done"
        stage.guest.check(again, timeout_s=SLOW_S)
        assert max(map(int, stage.guest.check(sizes, timeout_s=SLOW_S).split())) < 200_000
        assert not stage.guest.check(f"ls {path}.2 2>/dev/null || true")


@pytest.mark.parametrize(("tag", "words"), [("notfound", "vbar_control_agent"), ("absent", "absent")])
def test_what_cannot_work_is_told_and_not_tried_in_a_spin(stage: Stage, tag: str, words: str) -> None:
    with configured(
        stage, f"containers: {{vbar: {{image: '{standins.REGISTRY}/{standins.VBAR}:{tag}'}}}}\n"
    ) as journal:
        journal.wait_for("container_failed", SLOW_S)
        shown = stage.await_status("vbar failed")
        assert "vbar failed" in shown
        assert words in shown


def run_another(stage: Stage, name: str, image_name: str) -> None:
    """Somebody else's container in the place of vBar's."""
    stage.guest.check(["docker", "rm", "-f", VBAR], timeout_s=SLOW_S)
    options = ["--detach", "--security-opt", "apparmor=unconfined", "--name", name]  # the guest has no apparmor_parser
    stage.guest.check(["docker", "run", *options, image_name, "busybox", "sleep", "1000"], timeout_s=SLOW_S)


def test_a_foreign_container_of_its_name_is_told_and_left_alone_and_then_it_starts(stage: Stage) -> None:
    guest = stage.guest
    guest.check(["systemctl", "stop", UNIT], timeout_s=SLOW_S)
    run_another(stage, VBAR, IMAGE)
    foreign = stage.inspect()["Id"]
    stage.after(lambda: guest.check(["systemctl", "start", UNIT], timeout_s=SLOW_S), "container_blocked")
    assert "not the agent's" in stage.await_status("not the agent's")
    assert guest.run(["tpuagent", "containers", "stop", "vbar"]).code != 0
    assert guest.run(["tpuagent", "containers", "remove"]).code != 0
    assert stage.inspect()["Id"] == foreign
    assert stage.inspect()["State"]["Running"]
    stage.after(
        lambda: guest.check(["docker", "rm", "-f", VBAR], timeout_s=SLOW_S), "container_running", timeout_s=SLOW_S
    )


def test_beside_the_stock_agent_it_stands_down(stage: Stage) -> None:
    guest = stage.guest
    guest.check(["systemctl", "stop", UNIT], timeout_s=SLOW_S)
    run_another(stage, "vbarcontrolagent", IMAGE)
    stage.after(lambda: guest.check(["systemctl", "start", UNIT], timeout_s=SLOW_S), "container_stood_down")
    assert stage.vbar()["state"] == "stood down"
    assert "vbarcontrolagent" in stage.vbar()["reason"]
    guest.check(["docker", "rm", "-f", "vbarcontrolagent"])
    guest.check(["systemd-run", "--unit=taken", "busybox", "nc", "-ll", "-p", "8353", "-e", "cat"])
    try:
        restart_agent(stage, "container_stood_down")
        assert "port 8353 is taken by process" in stage.vbar()["reason"]
    finally:
        guest.check(["systemctl", "stop", "taken"])
    restart_agent(stage, "container_running")


def test_on_a_node_of_kubernetes_engine_it_stands_down(stage: Stage) -> None:
    guest = stage.guest
    guest.check(["docker", "rm", "-f", VBAR], timeout_s=SLOW_S)
    key = f"{URL}/instance/attributes/kube-env"
    guest.check(["systemctl", "stop", UNIT], timeout_s=SLOW_S)
    guest.check(["docker", "rm", "-f", VBAR], timeout_s=SLOW_S)
    guest.check(["curl", "-sf", "-X", "PUT", "--data-binary", "x", key])
    stage.after(lambda: guest.check(["systemctl", "start", UNIT], timeout_s=SLOW_S), "container_stood_down")
    assert "Kubernetes Engine" in stage.vbar()["reason"]
    guest.check(["curl", "-sf", "-X", "DELETE", key])
    restart_agent(stage, "container_running")


def test_without_a_registry_the_image_comes_from_an_archive(stage: Stage) -> None:
    guest = stage.guest
    guest.check(["systemctl", "stop", UNIT, "gcr.service"], timeout_s=SLOW_S)
    guest.check(f"docker rm -f {VBAR}; docker rmi -f {IMAGE}")
    guest.check(
        f"mkdir -p /var/lib/tpu-agent/images; cp {ARCHIVES}/vbar_control_agent-0.0.1.tar /var/lib/tpu-agent/images/"
    )
    pulls = stage.pulls()
    stage.after(
        lambda: guest.check(["systemctl", "start", UNIT], timeout_s=SLOW_S),
        "image_loaded",
        "container_running",
        timeout_s=SLOW_S,
    )
    assert stage.pulls() == pulls
    assert stage.listens()
    guest.check("rm -r /var/lib/tpu-agent/images; systemctl start gcr.service")


def test_a_full_disk_is_told_and_overcome(stage: Stage) -> None:
    guest = stage.guest
    guest.check(["systemctl", "stop", UNIT, "docker.socket", "docker.service"], timeout_s=SLOW_S)
    guest.check("mount -t tmpfs -o size=1900k tmpfs /var/lib/docker")
    guest.check(["systemctl", "start", "docker.socket", "docker.service"], timeout_s=SLOW_S)
    stage.after(lambda: guest.check(["systemctl", "start", UNIT], timeout_s=SLOW_S), "no space left", timeout_s=SLOW_S)
    assert "no space left" in stage.await_status("no space left")
    stage.after(
        lambda: guest.check("mount -o remount,size=100m /var/lib/docker"), "container_running", timeout_s=SLOW_S
    )
    guest.check(["systemctl", "stop", UNIT, "docker.socket", "docker.service"], timeout_s=SLOW_S)
    guest.check(["umount", "/var/lib/docker"])
    guest.check(["systemctl", "start", "docker.socket", "docker.service"], timeout_s=SLOW_S)
    stage.after(
        lambda: guest.check(["systemctl", "start", UNIT], timeout_s=SLOW_S), "container_running", timeout_s=SLOW_S
    )


def test_latest_that_has_moved_is_told(stage: Stage) -> None:
    guest = stage.guest
    latest = "{telemetry: {enabled: true, pull: always}}"
    with configured(stage, f"containers: {latest}\n", "container_removed container=telemetry") as journal:
        journal.wait_for("container_running container=telemetry", SLOW_S)
        before = stage.containers()["telemetry"]["digest"]
        folder = f"/var/lib/docker-registry/docker/registry/v2/repositories/{standins.TELEMETRY}/_manifests/tags"
        guest.check(["cp", f"{folder}/next/current/link", f"{folder}/latest/current/link"])
        guest.check(["systemctl", "stop", UNIT], timeout_s=SLOW_S)
        guest.check(["docker", "rm", "-f", "tpu-agent-telemetry"])
        stage.after(
            lambda: guest.check(["systemctl", "start", UNIT], timeout_s=SLOW_S),
            "image_moved",
            "container_running container=telemetry",
        )
        assert stage.containers()["telemetry"]["digest"] != before
    assert guest.run(["docker", "inspect", "tpu-agent-telemetry"]).code != 0, "switched off, it is gone"


def test_a_reboot_is_over_in_time_and_it_runs_again(stage: Stage) -> None:
    guest = stage.guest
    before = stage.inspect()["Id"]
    began = float(guest.check(["date", "+%s"]))
    guest.reboot()
    assert float(guest.check(["date", "-d", guest.check(["uptime", "-s"]).strip(), "+%s"])) - began < 90
    follow = guest.start(["journalctl", "--boot", "--unit", UNIT, "--follow", "--output=cat", "--lines=all"])
    follow.wait_for("container_running container=vbar", SLOW_S)
    follow.kill()
    follow.wait()
    await_ready(guest)
    assert stage.inspect()["Id"] != before, "the nodes are other ones"
    assert stage.await_status(GOOD) == GOOD


def test_with_the_package_its_containers_go_and_no_other(stage: Stage) -> None:
    guest = stage.guest
    guest.check(
        ["docker", "run", "-d", "--privileged", "--name", "other", IMAGE, "busybox", "sleep", "1000"], timeout_s=SLOW_S
    )
    said = guest.check(["dpkg", "--remove", "tpu-agent"], timeout_s=SLOW_S)
    assert "removed vbar" in said
    left = guest.check(["docker", "ps", "--all", "--format", "{{.Names}}"]).split()
    assert left == ["other"]
