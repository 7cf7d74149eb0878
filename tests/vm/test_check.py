"""Is what `tpuagent check` says true in a guest, and does the command that it prints mend what it names?

Each thing is spoiled as people and packages spoil it, and mended by exactly what the check prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tpuagent.image import settings
from tpuagent.image.rows import OK, WARNING, WRONG

from . import image, standins
from .agent import PCI, UNIT, await_ready, give_to, group_node
from .checking import Row, faults, look
from .guest import Guest
from .machine import Machine
from .metadata import PATH
from .progress import Say
from .recipe import USER, Distribution
from .stage import VBAR, Stage

SLOW_S = 180
# QEMU starts the kernel, so nothing of GRUB is in force; `idle=poll` would cost the machine below a whole processor.
MACHINE = Machine(("v6e", "v6e"), kernel_arguments=("transparent_hugepage=always",), memory_mib=3072)
TRUE_HERE = {("kernel: idle", WRONG), ("gcloud", WARNING)}
UNBOUND, FOREIGN, CLOSED = 0, 0, 1  # functions of the machine
LIMITS, SERVICES = "/etc/security/limits.d/99-site.conf", "/etc/systemd/system.conf.d/99-site.conf"
STOCK = "vbarcontrolagent.service"


@dataclass(frozen=True)
class Spoiled:
    """How something is spoiled, by a command; the row that tells of it, and a part of what that says."""

    how: str
    what: str
    verdict: str
    found: str


SPOILED = {
    "huge pages": Spoiled("echo never >/sys/kernel/mm/transparent_hugepage/enabled", "huge pages", WRONG, "[never]"),
    "memlock of sessions": Spoiled(
        f"printf '# site\n* hard memlock 64\n* soft memlock 64\n' >{LIMITS}", "session users: memlock", WRONG,
        f"64 ({LIMITS}:3)"),
    "nofile of root": Spoiled(
        "echo 'root - nofile 512' >/etc/security/limits.d/98-root.conf", "session root: nofile", WRONG, "512 ("),
    "one user": Spoiled(
        f"echo '{USER} hard memlock 128' >/etc/security/limits.d/97-user.conf", f"session {USER}: memlock", WARNING,
        "128 ("),
    "memlock of services": Spoiled(
        f"mkdir -p /etc/systemd/system.conf.d; printf '[Manager]\nDefaultLimitMEMLOCK=8M\n' >{SERVICES}",
        "services: memlock", WRONG, f"8M ({SERVICES}:2)"),
    "nofile of services": Spoiled(
        "printf '[Manager]\nDefaultLimitNOFILE=4096\n' >/etc/systemd/system.conf.d/98-x.conf; systemctl daemon-reload",
        "services: nofile", WRONG, "4096 (/etc/systemd/system.conf.d/98-x.conf:2)"),
    "ids of vfio-pci": Spoiled(
        "echo 'options vfio-pci ids=10de:1eb8' >/etc/modprobe.d/vfio.conf", "vfio-pci ids=", WARNING,
        "/etc/modprobe.d/vfio.conf:1 lacks"),
    "a refused module": Spoiled(
        "echo 'install vfio_iommu_type1 /bin/false' >/etc/modprobe.d/hard.conf", "module vfio_iommu_type1", WRONG,
        "/etc/modprobe.d/hard.conf:1"),
    "no module at boot": Spoiled(
        "ln -s /dev/null /etc/modules-load.d/tpu-agent.conf", "module vfio-pci", WARNING, "no modules-load.d names it"),
    "repeated lines": Spoiled(
        "for n in 1 2 3; do printf 'X=1\nY=2\n' >>/etc/environment; done", "/etc/environment", WARNING,
        "repeated lines: 4"),
    "a rule by hand": Spoiled(
        """printf '#!/bin/sh\n' >/opt/bind.sh; echo 'ATTR{vendor}=="0x1ae0", RUN+="/opt/bind.sh"' >"""
        "/etc/udev/rules.d/99-vfio.rules", "udev rule by hand", WARNING, "99-vfio.rules runs /opt/bind.sh"),
    "a script of cloud-init": Spoiled(
        "mkdir -p /var/lib/cloud/scripts/per-boot; cd /var/lib/cloud/scripts/per-boot; "
        "printf '#!/bin/sh\necho A=b >>/etc/environment\n' >env.sh; chmod 755 env.sh", "script by hand", WARNING,
        "/var/lib/cloud/scripts/per-boot/env.sh"),
    "limits by hand": Spoiled(
        "echo '* soft memlock unlimited' >>/etc/security/limits.conf", "limits by hand", WARNING, "limits.conf"),
    "a stock vBar": Spoiled(
        f"printf '[Service]\nExecStart=/bin/sleep 9999\n[Install]\nWantedBy=multi-user.target\n' "
        f">/etc/systemd/system/{STOCK}; systemctl enable --now {STOCK}", "stock vBar", WARNING, STOCK),
    "Docker": Spoiled(
        "systemctl stop docker.socket docker.service; systemctl mask docker.service docker.socket",
        "container engine", WRONG, "docker is masked"),
    "tpu-env": Spoiled(f"echo \"A='b\" >{PATH}", "tpu-env", WRONG, "not as the agent wrote it"),
    "the agent at boot": Spoiled(f"systemctl mask {UNIT}", "tpu-agent.service", WRONG, "masked"),
}  # fmt: skip


@pytest.fixture(scope="module")
def host(distribution: Distribution, docker_image: image.BootImage, say: Say) -> Iterator[Guest]:
    with Guest(docker_image, MACHINE, name=f"{distribution.name}-check", say=say) as booted:
        await_ready(booted)
        Stage(booted).await_status("vbar running", SLOW_S)
        yield booted


def test_a_good_host_has_only_the_faults_that_it_has(host: Guest) -> None:
    code, rows = look(host)
    assert faults(rows) == TRUE_HERE
    assert code == 1
    found = {row.what: row for row in rows}
    assert found["kernel: idle"].mend == "add idle=poll to the kernel command line of what boots this machine; reboot"
    assert found["container engine"].found == "docker (/run/docker.sock)"
    assert found["v6e: functions"].found == "2 ready, nodes 0666"
    assert found["tpu-env"].found in ("written", "current")
    assert found["services: memlock"].found == "infinity"


def test_the_table_says_the_same_to_everybody_but_what_only_root_may_read(host: Guest) -> None:
    assert "1 wrong, 1 warning" in host.run(["tpuagent", "check"]).stdout.splitlines()[-1]
    assert "1 wrong, 1 warning" in host.run(["tpuagent", "check"], user=USER).stdout.splitlines()[-1]


# Limits, against what sessions and services really get -------------------------------------------------------------

REAL = "ulimit -S -l; ulimit -H -l; ulimit -S -n; ulimit -H -n"
WANTED = (("memlock", None), ("nofile", 100_000))


def worst(shown: str) -> dict[str, str]:
    """For each item the limit that falls short; empty where none does."""
    soft_and_hard = iter(shown.split())
    found = {}
    for (item, least), soft, hard in zip(WANTED, soft_and_hard, soft_and_hard, strict=True):
        short = [value for value in (soft, hard) if value != "unlimited" and (least is None or int(value) < least)]
        found[item] = short[0] if short else ""
    return found


@pytest.mark.parametrize(
    "lines",
    ["", "* - memlock 64", "* hard memlock 4096", "* soft memlock 100", "* - nofile 1024", "* soft nofile 99999",
     "* - nofile 200000", "root hard nofile 4096", "root soft memlock 64", f"{USER} - memlock 64\\n* - memlock 96",
     "# * - memlock 64", "* - memlock", "* - memlock 12abc", "* - memlock abc"],
)  # fmt: skip
def test_what_it_says_of_sessions_is_what_a_login_gets(host: Guest, lines: str) -> None:
    host.check(f"printf '{lines}\\n' >{LIMITS}")
    try:
        real = {
            "users": worst(host.check(["su", "--login", USER, "--command", REAL])),
            "root": worst(host.check(["su", "--login", "root", "--command", REAL])),
        }
        _, rows = look(host)
    finally:
        host.check(["rm", LIMITS])
    named = {row.what: row for row in rows}
    for who, items in real.items():
        for item, short in items.items():
            # Who has a line with his name has a row of his own.
            own = named.get(f"session {USER}: {item}") if who == "users" else None
            row = own or named[f"session {who}: {item}"]
            assert (row.found.split()[0] if row.verdict != OK else "") == short, (who, item, row)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("", None),
        ("DefaultLimitMEMLOCK=8M", "memlock"),
        ("DefaultLimitMEMLOCK=65536:infinity", "memlock"),
        ("DefaultLimitMEMLOCK=1.5G", "memlock"),
        ("DefaultLimitMEMLOCK=8M\nDefaultLimitMEMLOCK=", "memlock"),
        ("DefaultLimitMEMLOCK=8M:4M\nDefaultLimitNOFILE=1K", None),
        ("DefaultLimitNOFILE=1024:524288", "nofile"),
        ("DefaultLimitNOFILE=100001", None),
        ("#DefaultLimitMEMLOCK=8M", None),
    ],
)
def test_what_it_says_of_services_is_what_a_service_gets(host: Guest, text: str, row: str | None) -> None:
    host.write(SERVICES, f"[Manager]\n{text}\n")
    try:
        host.check(["systemctl", "daemon-reload"])
        real = worst(host.check(["systemd-run", "--quiet", "--wait", "--pipe", "sh", "-c", REAL]))
        _, rows = look(host)
    finally:
        host.check(f"rm {SERVICES}; systemctl daemon-reload")
    short = {item for item, value in real.items() if value}
    assert short == ({row} if row else set())
    assert {what for what, _ in faults(rows) - TRUE_HERE} == {f"services: {item}" for item in short}


# docker.service and containerd.service have limits of files of their own; of locked memory they have what services get.
OPTIONS = ("--rm", "--security-opt", "apparmor=unconfined")  # the guest has no apparmor_parser
IMAGE = f"{standins.REGISTRY}/{standins.VBAR}:0.0.1"


def limits(shown: str) -> dict[str, tuple[str, str]]:
    """The soft and the hard limits in the kernel's own table."""
    names = {"Max locked memory": "memlock", "Max open files": "nofile"}
    return {names[line[:26].strip()]: (line[26:47].strip(), line[47:68].strip())
            for line in shown.splitlines() if line[:26].strip() in names}  # fmt: skip


def test_vbar_may_lock_memory_and_open_files_and_sees_the_nodes(host: Guest) -> None:
    pid = host.check(["docker", "inspect", "--format", "{{.State.Pid}}", VBAR]).strip()
    found = limits(host.read(f"/proc/{pid}/limits"))
    assert found["memlock"] == ("unlimited", "unlimited")
    assert min(map(int, found["nofile"])) >= int(settings.OPEN_FILES), found
    inside = host.check(["docker", "exec", VBAR, "busybox", "ls", "/dev/vfio"], timeout_s=SLOW_S).split()
    assert sorted(inside) == sorted(host.check(["ls", "/dev/vfio"]).split())
    assert len(inside) == 3


def test_a_container_of_somebody_else_may_as_well_without_being_asked(host: Guest) -> None:
    shown = host.check(["docker", "run", *OPTIONS, IMAGE, "busybox", "cat", "/proc/self/limits"], timeout_s=SLOW_S)
    found = limits(shown)
    assert found["memlock"] == ("unlimited", "unlimited")
    assert min(map(int, found["nofile"])) >= int(settings.OPEN_FILES), found


# Spoiled and mended ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """What the check said when everything was spoiled, how the mends ended, and what it said then."""

    code: int
    spoiled: list[Row]
    mends: dict[str, str]
    mended: list[Row]


@pytest.fixture(scope="module")
def story(host: Guest) -> Story:
    """Everything is spoiled at once: a check takes seconds in an emulated guest."""
    host.check(["systemctl", "stop", UNIT], timeout_s=SLOW_S)  # it would repair some of it by itself
    for spoiled in SPOILED.values():
        host.check(spoiled.how, timeout_s=SLOW_S)
    host.check(["modprobe", "pci-stub"])
    give_to(host, host.address(FOREIGN), "pci-stub")
    host.check(["chmod", "0600", group_node(host, host.address(CLOSED))])
    code, rows = look(host)
    ended = {}
    mends = [row.mend for row in rows if (row.what, row.verdict) not in TRUE_HERE and not row.mend.startswith("edit ")]
    # The agent last: whoever follows the table from above comes to it last, too.
    for mend in sorted(dict.fromkeys(filter(None, mends)), key=lambda mend: "systemctl start tpu-agent" in mend):
        done = host.run(mend, timeout_s=SLOW_S)
        ended[mend] = f"{done.stdout}{done.stderr}" if done.code else ""
    Stage(host).await_status("vbar running", SLOW_S)
    return Story(code, rows, ended, look(host)[1])


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_spoiled_is_named_and_its_mend_mends(story: Story, name: str) -> None:
    spoiled = SPOILED[name]
    (row,) = [row for row in story.spoiled if row.what == spoiled.what and spoiled.found in row.found]
    assert row.verdict == spoiled.verdict
    assert story.mends[row.mend] == ""
    assert (spoiled.what, spoiled.verdict) not in faults(story.mended)


def test_functions_with_another_driver_and_a_closed_node_are_named_and_mended(story: Story, host: Guest) -> None:
    for number in (FOREIGN, CLOSED):
        address = host.address(number)
        (row,) = [row for row in story.spoiled if row.what == f"v6e: {address}"]
        assert (row.verdict, row.mend) == (WRONG, f"tpuagent bind {address}")
        assert story.mends[row.mend] == ""
    assert {row.found for row in story.mended if row.what == "v6e: functions"} == {"2 ready, nodes 0666"}


def test_all_of_it_is_wrong_and_then_nothing_but_what_was_before(story: Story) -> None:
    assert story.code == 1
    assert faults(story.mended) == TRUE_HERE


def test_what_was_mended_is_in_force(story: Story, host: Guest) -> None:
    assert "" in [code for mend, code in story.mends.items() if "systemctl start tpu-agent" in mend]
    assert "[always]" in host.read("/sys/kernel/mm/transparent_hugepage/enabled")
    assert host.check(["su", "--login", USER, "--command", REAL]) == "unlimited\nunlimited\n100000\n100000\n"
    argv = ["systemd-run", "--quiet", "--wait", "--pipe", "sh", "-c", REAL]
    assert host.check(argv) == "unlimited\nunlimited\n100000\n524288\n"
    ids = host.check("modprobe --show-depends vfio-pci; modprobe --showconfig | grep 'options vfio_pci'")
    assert ids.rstrip().rpartition("ids=")[2].count("1ae0:") == 6
    assert "10de:1eb8" in ids
    assert host.read("/etc/environment").count("X=1\nY=2\n") == 1
    assert host.run("ls /opt/bind.sh /etc/udev/rules.d/99-vfio.rules").code != 0
    assert host.check(["systemctl", "is-active", "docker.service"]) == "active\n"
    assert host.run(["systemctl", "is-active", STOCK]).stdout == "inactive\n"


def test_a_released_function_is_a_warning_and_comes_back_by_the_mend(host: Guest) -> None:
    address = host.address(UNBOUND)
    host.check(["tpuagent", "unbind", address])
    _, rows = look(host)
    (row,) = [row for row in rows if row.what == f"v6e: {address}"]
    assert (row.verdict, row.found.split(":")[0]) == (WARNING, "released")
    host.check(row.mend)
    assert (row.what, row.verdict) not in faults(look(host)[1])
    assert host.check(["readlink", f"{PCI}/{address}/driver"]).strip().endswith("/vfio-pci")
