"""On a Google host: what do boots, logins, shells and units get from the metadata server, whatever it does?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.metadata import corpus

from . import image
from .agent import UNIT, Journal, await_ready, await_status, show, status_line
from .guest import Guest
from .machine import Machine
from .metadata import PATH, READ, VALUES, install_server, read_by_shell, read_by_unit, set_document, set_tpu_env
from .progress import Say
from .recipe import USER, Distribution

EVERYWHERE = "0.0.0.0"  # noqa: S104  in the guest, before it has the address of the metadata server
DEVICES = "1 of 1 v6e functions ready"
GOOD = f"{DEVICES}; tpu-env, v6e-8, worker 0"
READY_WAIT_S = 30
IMPORTS_S = 80  # until the agent has read its configuration, in the middle of a boot that may be emulated
OURS = {
    "CLOUDSDK_PYTHON": "/usr/bin/python3",
    "GCS_RESOLVE_REFRESH_SECS": "60",
    "GCS_REQUEST_CONNECTION_TIMEOUT_SECS": "300",
    "GCS_METADATA_REQUEST_TIMEOUT_SECS": "300",
    "GCS_READ_REQUEST_TIMEOUT_SECS": "300",
    "GCS_WRITE_REQUEST_TIMEOUT_SECS": "600",
}
OUR_LINES = [f"{name}={value}" for name, value in OURS.items()]
DROP_IN = "/etc/tpu-agent/config.d/90-test.yaml"
UNIT_DROP_IN = "/run/systemd/system/tpu-agent.service.d/test.conf"


@pytest.fixture(scope="module")
def host(distribution: Distribution, package_image: image.BootImage, say: Say) -> Iterator[Guest]:
    """A Google host that has booted while nothing answered at the metadata server's address."""
    with Guest(package_image, Machine(("v6e",)), name=f"{distribution.name}-metadata", say=say) as booted:
        await_ready(booted)
        yield booted


@pytest.fixture(scope="module")
def served(host: Guest) -> Guest:
    """The same host when the server has come. Who changes something there puts it back."""
    install_server(host)
    journal = Journal(host)
    host.check(["systemctl", "start", "metadata-server.service"])
    journal.wait_for("tpu_env_written")
    return host


def moments(guest: Guest, unit: str, *names: str) -> list[float]:
    """When something happened to a unit, in seconds since the boot."""
    asked = [f"--property={name}TimestampMonotonic" for name in names]
    shown = guest.check(["systemctl", "show", unit, *asked]).split()
    found = dict(line.split("TimestampMonotonic=") for line in shown)
    return [int(found[name]) / 1e6 for name in names]


def reload(guest: Guest, event: str) -> None:
    """Let the agent read its configuration, and return when it has logged this."""
    journal = Journal(guest)
    guest.check(["systemctl", "reload", UNIT])
    journal.wait_for(event)


# A boot without the server. These two come first ------------------------------------------------------------------


def test_without_the_server_the_boot_goes_on_and_the_agent_is_ready_in_bounded_time_and_degraded(host: Guest) -> None:
    started, ready = moments(host, UNIT, "ExecMainStart", "ActiveEnter")
    assert READY_WAIT_S <= ready - started < READY_WAIT_S + IMPORTS_S
    (booted,) = moments(host, "multi-user.target", "ActiveEnter")
    assert booted < ready, "the boot has not waited for it"
    reached = "cannot reach the metadata server: 169.254.169.254: network is unreachable; metadata.google.internal: "
    assert status_line(host).startswith(f"{DEVICES}; no tpu-env: {reached}")
    assert host.run(["tpuagent", "status"]).code == 1
    assert host.run(["tpuagent", "metadata", "tpu-env"]).code == 21
    assert host.run(["test", "-e", PATH]).code == 1
    said = host.check(["journalctl", "--unit", UNIT, "--grep=metadata_server_lost", "--output=cat"])
    assert said.count("\n") == 1, "once, and not at each attempt"
    assert host.read("/etc/environment").splitlines() == OUR_LINES


def test_a_page_that_asks_to_sign_in_is_never_taken_for_the_server(host: Guest) -> None:
    install_server(host)
    portal = host.start(["python3", "/root/metadata_server.py", "--address", EVERYWHERE, "--port", "80"])
    portal.wait_for("metadata server at")
    host.check(["curl", "-sf", "-X", "PUT", "--data-binary", "@-", "http://127.0.0.1/faults"], input="html " * 100)
    host.check("ip address add 169.254.169.254/32 dev lo")
    try:
        host.check("until tpuagent status | grep 'somebody else answers there'; do sleep 0.1; done")
        shown = "; no tpu-env: cannot reach the metadata server: 169.254.169.254: somebody else"
        assert shown in await_status(host, shown)
        refused = host.run(["tpuagent", "env", "refresh"])
        assert (refused.code, refused.stdout) == (21, "")
        assert host.run(["test", "-e", PATH]).code == 1
    finally:
        host.check("ip address del 169.254.169.254/32 dev lo")
        portal.kill()
        portal.wait()


# With the server --------------------------------------------------------------------------------------------------


def test_when_the_server_comes_the_agent_is_ready_by_itself(served: Guest) -> None:
    assert show(served, "NRestarts") == "0"
    assert await_status(served, GOOD) == GOOD
    assert served.check(["tpuagent", "status"], user=USER).startswith(f"ready: {GOOD}\n")
    assert served.check(["stat", "--format=%a %U:%G", PATH, str(Path(PATH).parent)]) == "644 root:root\n755 root:root\n"
    assert served.read(PATH) == "".join(f'{name}="{value}"\n' for name, value in VALUES.items())
    said = served.check(["journalctl", "--unit", UNIT, "--grep=metadata_server_(lost|found)", "--output=cat"])
    assert [line.split()[0] for line in said.splitlines()] == ["metadata_server_lost", "metadata_server_found"]


def test_a_change_while_it_runs_is_in_the_file_within_a_second(served: Guest) -> None:
    for worker in ("3", "0"):
        journal = Journal(served)
        began = set_tpu_env(served, {**VALUES, "TPU_WORKER_ID": worker})
        journal.wait_for(f"worker_id={worker}")
        assert float(served.check(["stat", "--format=%.Y", PATH])) - began < 1
        assert status_line(served).endswith(f"worker {worker}")


def test_it_stops_at_once_and_a_silent_name_server_does_not_delay_the_next_start(served: Guest) -> None:
    served.check("ip route replace 192.0.2.0/24 dev lo; echo nameserver 192.0.2.1 >/etc/resolv.conf")
    try:
        assert served.run("timeout 2 getent hosts metadata.google.internal").code == 124
        began, ended = served.check(f"date +%s.%N; systemctl stop {UNIT}; date +%s.%N").split()
        assert float(ended) - float(began) < 5, "while the server holds its request"
        journal = Journal(served)
        served.check(["systemctl", "start", UNIT], timeout_s=READY_WAIT_S - 5)
        assert await_status(served, GOOD) == GOOD
        assert "metadata_server_lost" not in journal.text()
    finally:
        served.check(": >/etc/resolv.conf; ip route del 192.0.2.0/24 dev lo")


def test_every_reader_gives_back_the_same_bytes_whatever_they_are(served: Guest) -> None:
    entries = corpus.one_map(seed=11, count=250)
    values = {name: value for name, value in entries.items() if corpus.writable(name, value)}
    assert len(values) > 500
    journal = Journal(served)
    set_document(served, corpus.as_yaml(entries, seed=11))
    journal.wait_for("tpu_env_written")
    folder = served.check(["mktemp", "-d"]).strip()
    for shell in ("bash", "dash"):
        read = read_by_shell(served, shell, folder)
        assert {name: read.get(name) for name in values} == values, shell
    assert served.check(["ls", folder]) == "", "something was executed"
    read = read_by_unit(served)
    assert {name: read.get(name) for name in values} == values, "EnvironmentFile="
    journal = Journal(served)
    set_tpu_env(served, VALUES)
    journal.wait_for("tpu_env_written")


def test_a_login_session_sees_the_time_outs_and_the_interpreter(served: Guest) -> None:
    shown = served.check(["su", "-", USER, "-c", "env"]).splitlines()
    assert sorted(line for line in shown if line.split("=")[0] in OURS) == sorted(OUR_LINES)
    assert served.check(["su", "-", USER, "-c", "$CLOUDSDK_PYTHON -c 'print(7)'"]) == "7\n"


def test_the_file_may_be_of_another_user_at_another_place(served: Guest) -> None:
    folder = f"/home/{USER}/run"
    served.write(DROP_IN, f'tpu_env:\n  path: {folder}/env\n  owner: {USER}\n  mode: "0640"\n  aliases: true\n')
    reload(served, f"path={folder}/env")
    shown = served.check(["stat", "--format=%a %U:%G", folder, f"{folder}/env"])
    assert shown == f"755 {USER}:{USER}\n640 {USER}:{USER}\n"
    assert 'ACCELERATOR_TYPE="v6e-8"\n' in served.check(["cat", f"{folder}/env"], user=USER)
    assert served.check(["tpuagent", "env", "path"]) == f"{folder}/env\n"
    served.check(["rm", "-r", DROP_IN, folder])
    reload(served, "configuration_loaded")


def test_files_that_cannot_be_written_are_said_and_stay_as_they_are(served: Guest) -> None:
    served.write(UNIT_DROP_IN, "[Service]\nReadOnlyPaths=/etc /home\n")
    served.check("systemctl daemon-reload; sed -i /GCS_WRITE/d /etc/environment")
    before = served.check(["cat", "/etc/environment", PATH])
    served.check(["systemctl", "restart", UNIT])
    journal = Journal(served)
    set_tpu_env(served, {**VALUES, "TPU_WORKER_ID": "5"})
    journal.wait_for("tpu_env_failed")
    line = status_line(served)
    assert f"cannot write {PATH}: read-only file system" in line
    assert "cannot edit /etc/environment: read-only file system" in line
    assert served.check(["cat", "/etc/environment", PATH]) == before
    set_tpu_env(served, VALUES)
    served.check(f"rm -r {Path(UNIT_DROP_IN).parent}; systemctl daemon-reload; systemctl restart {UNIT}")
    assert await_status(served, GOOD) == GOOD
    assert served.read("/etc/environment").splitlines() == OUR_LINES


# After another boot, and in the end -------------------------------------------------------------------------------


def test_after_a_reboot_a_unit_that_follows_the_agent_has_the_values_and_nothing_has_piled_up(served: Guest) -> None:
    served.check("sed -i s/GCS_READ_REQUEST_TIMEOUT_SECS=300/GCS_READ_REQUEST_TIMEOUT_SECS=7/ /etc/environment")
    served.check("sed -i '1i # an administrator was here\\nMINE=\"a b\"' /etc/environment")
    served.check(["systemctl", "enable", "--quiet", "workload.service", "metadata-server.service"])
    reload(served, "GCS_READ_REQUEST_TIMEOUT_SECS is '7' in the file and stays")
    before = served.read("/etc/environment")
    served.check(["rm", "-f", PATH, READ])
    served.reboot()
    served.check(["systemctl", "start", "workload.service"])  # returns when it has run, as it does at every boot
    assert show(served, "NRestarts") == "0"
    assert await_status(served, GOOD) == GOOD
    (ran,), (ready,) = moments(served, "workload.service", "ExecMainStart"), moments(served, UNIT, "ActiveEnter")
    assert ran > ready
    assert read_by_unit(served, again=False).items() >= VALUES.items()
    assert served.read("/etc/environment") == before
    shown = served.check(["su", "-", USER, "-c", "env"]).splitlines()
    assert {"MINE=a b", "GCS_READ_REQUEST_TIMEOUT_SECS=7", "GCS_WRITE_REQUEST_TIMEOUT_SECS=600"} <= set(shown)


def test_a_purge_takes_the_agents_own_lines_and_no_others(served: Guest) -> None:
    served.check(
        "chown root:adm /etc/environment; chmod 640 /etc/environment; printf 'LAST=line\\n' >>/etc/environment"
    )
    others = [line for line in served.read("/etc/environment").splitlines() if line not in OUR_LINES]
    served.check(["dpkg", "--remove", "tpu-agent"], timeout_s=180)
    served.check(["dpkg", "--purge", "tpu-agent"], timeout_s=180)
    assert served.read("/etc/environment").splitlines() == others
    assert served.check(["stat", "--format=%a %U:%G", "/etc/environment"]) == "640 root:adm\n"
    assert served.run("ls -d /var/lib/tpu-agent /etc/tpu-agent /run/tpu-agent").stdout == ""
    served.check(["su", "-", USER, "-c", "true"])
