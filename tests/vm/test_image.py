"""On a disk built from a bare Debian and this package, booted through its own GRUB: is every setting in force?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging_chroot.root import APT_UPDATE, as_repository
from tpuagent.image import settings
from tpuagent.image.rows import OK, WARNING, WRONG

from .agent import UNIT, await_ready, devices, driver, show
from .checking import faults, look
from .disk import disk_image
from .guest import Guest
from .machine import EIGHT_CHIPS, Machine
from .progress import Say
from .recipe import BOOKWORM, NO_CONTAINERS_FILE, USER, Distribution

# With idle=poll a processor that waits costs the machine below as much as one that works, so there is one.
MACHINE = Machine((*EIGHT_CHIPS, "network"), google=False, processors=1)
ALL_READY = "4 of 4 v5p, 2 of 2 v6e, 2 of 2 tpu7x (1 chip) functions ready"
SHOW_LIMITS = "ulimit -S -l; ulimit -H -l; ulimit -S -n; ulimit -H -n"
BOOT_LIMIT_S = 580
LATE = "/etc/default/grub.d/zzz-site.cfg"
TRUE_HERE = {("gcloud", WARNING)}


@pytest.fixture(scope="module")
def host(distribution: Distribution, package: Path, say: Say) -> Iterator[Guest]:
    if distribution != BOOKWORM:
        pytest.skip("the same files on every distribution, and the disk takes minutes to build")
    disk = disk_image(distribution, package, say)
    with Guest(disk, MACHINE, name="disk", say=say, boot_timeout_s=BOOT_LIMIT_S) as booted:
        await_ready(booted)
        yield booted


def unit_second(guest: Guest, unit: str, moment: str) -> float:
    """When systemd saw this moment of a unit, in seconds since the kernel started."""
    shown = guest.check(["systemctl", "show", unit, "--property", f"{moment}TimestampMonotonic", "--value"])
    return int(shown) / 1e6


def test_the_image_build_was_told_that_grub_knows(host: Guest) -> None:
    told = [line for line in host.read("/root/install.log").splitlines() if line.startswith("tpu-agent: ")]
    assert told == ["tpu-agent: grub.cfg is regenerated; the kernel parameters change with the next boot"]
    assert "idle=poll" not in host.read("/root/grub.cfg.before")


def test_the_kernel_got_the_parameters_last_and_once_and_everything_else_as_it_was(host: Guest) -> None:
    line = host.read("/proc/cmdline").split()
    ours = settings.render_kernel_parameters().split()
    assert line[-len(ours) :] == ours
    assert [line.count(word) for word in ours] == [1, 1, 1]
    before = re.search(r"^\tlinux\t\S+ (.*)$", host.read("/root/grub.cfg.before"), re.MULTILINE)
    assert before
    assert line[1 : -len(ours)] == before[1].split()


def test_huge_pages_are_on_although_the_image_said_never(host: Guest) -> None:
    assert "transparent_hugepage=never" in host.read("/proc/cmdline")
    assert host.read("/sys/kernel/mm/transparent_hugepage/enabled") == "[always] madvise never\n"


def test_the_iommu_is_on(host: Guest) -> None:
    groups = {host.check(["readlink", f"/sys/bus/pci/devices/{address}/iommu_group"]) for address in devices(host)}
    assert len(groups) == 8


@pytest.mark.parametrize("user", [USER, "root"])
def test_a_session_has_the_limits(host: Guest, user: str) -> None:
    assert host.check(["su", "--login", user, "--command", SHOW_LIMITS]) == "unlimited\nunlimited\n100000\n100000\n"


def test_a_service_has_the_limits_and_keeps_the_hard_one_of_files(host: Guest) -> None:
    argv = ["systemd-run", "--quiet", "--wait", "--pipe", "sh", "-c", SHOW_LIMITS]
    assert host.check(argv) == "unlimited\nunlimited\n100000\n524288\n"
    assert show(host, "LimitMEMLOCK") == "infinity"


def test_the_kernel_bound_every_chip_before_the_agent_started_and_nothing_else(host: Guest) -> None:
    bound = unit_second(host, "systemd-modules-load.service", "ExecMainExit")
    assert 0 < bound < unit_second(host, UNIT, "ExecMainStart")
    assert {driver(host, address) for address in devices(host)} == {"vfio-pci"}
    for address in devices(host):
        # Nobody wrote one: it was not the agent.
        assert host.read(f"/sys/bus/pci/devices/{address}/driver_override").strip() in ("(null)", "")
    (network,) = host.addresses("network")
    assert driver(host, network) == ""


def test_the_agent_had_only_to_look_and_to_open_the_nodes(host: Guest) -> None:
    log = host.check(["journalctl", "--boot", "--unit", UNIT, "--output=cat", "--quiet"])
    assert re.findall(r"function_ready .*steps=(\d+)", log) == ["1"] * 8
    assert {entry["mode"] for entry in devices(host).values()} == {"0666"}
    assert ALL_READY in host.run(["tpuagent", "status"]).stdout


def test_nothing_failed_at_boot(host: Guest) -> None:
    assert host.check(["systemctl", "list-units", "--failed", "--plain", "--no-legend"]) == ""


# The rest changes something, and is last.


def test_limits_of_services_are_switched_off_as_documented_and_a_reload_applies_it(host: Guest) -> None:
    shown = ["systemctl", "show", "--property=DefaultLimitMEMLOCK", "--value"]
    assert host.check(shown) == "infinity\n"
    mask = settings.SWITCHED_OFF_BY[settings.SYSTEMD_FILE]
    host.check(f"mkdir -p {mask.rpartition('/')[0]}; ln -s /dev/null {mask}; systemctl daemon-reload")
    assert host.check(shown) != "infinity\n"
    host.check(f"rm {mask}; systemctl daemon-reload")
    assert host.check(shown) == "infinity\n"


def test_the_check_finds_nothing_wrong(host: Guest) -> None:
    """Without containers, which this disk has no engine for."""
    host.write(NO_CONTAINERS_FILE, "containers: {vbar: {enabled: false}}\n")
    host.check(["systemctl", "restart", UNIT], timeout_s=120)
    code, rows = look(host)
    assert (code, faults(rows)) == (0, TRUE_HERE)


def test_who_overrides_our_parameters_in_grub_is_named_and_the_mend_lets_ours_win(host: Guest) -> None:
    host.write(LATE, 'GRUB_CMDLINE_LINUX_DEFAULT="quiet transparent_hugepage=never"\n')
    host.check(["update-grub"], timeout_s=240)
    code, rows = look(host)
    named = {row.what: row for row in rows}
    for name, _ in settings.KERNEL_PARAMETERS:
        row = named[f"grub.cfg: {name}"]
        assert (row.verdict, named[f"kernel: {name}"].verdict) == (WRONG, OK), (
            "the kernel that runs knows nothing of it"
        )
        assert row.found.endswith(f"overridden by {LATE}")
    assert code == 1
    host.check(row.mend, timeout_s=240)
    code, rows = look(host)
    assert (code, faults(rows)) == (0, TRUE_HERE)
    assert "quiet transparent_hugepage=never idle=poll" in host.read(settings.GRUB_CONFIGURATION)


def test_settings_that_are_switched_off_are_off_after_the_next_boot_and_the_agent_binds_by_itself(
    host: Guest,
) -> None:
    host.check(["rm", settings.GRUB_DROP_IN])
    host.check(["update-grub"], timeout_s=240)
    for path in (settings.MODPROBE_FILE, settings.MODULES_FILE):
        host.check(["ln", "-s", "/dev/null", settings.SWITCHED_OFF_BY[path]])
    host.reboot()
    await_ready(host)
    ours = set(settings.render_kernel_parameters().split())
    assert not ours & set(host.read("/proc/cmdline").split())
    log = host.check(["journalctl", "--boot", "--unit", UNIT, "--output=cat", "--quiet"])
    assert re.findall(r"function_ready .*steps=(\d+)", log) == ["4"] * 8


def test_what_is_switched_off_is_told_and_its_mends_bring_it_back_with_the_next_boot(
    host: Guest, package: Path
) -> None:
    code, rows = look(host)
    kernel = {f"{where}: {name}" for name, _ in settings.KERNEL_PARAMETERS for where in ("kernel", "grub.cfg")}
    modules = {"vfio-pci ids=", *(f"module {module}" for module in settings.MODULES)}
    # The image says `never`, and nobody contradicts any more.
    never = {"kernel: transparent_hugepage", "grub.cfg: transparent_hugepage", "huge pages"}
    warned = (kernel | modules) - never
    assert (code, faults(rows)) == (
        1,
        {(what, WRONG) for what in never} | {(what, WARNING) for what in warned} | TRUE_HERE,
    )
    for path, data in as_repository(package).items():
        host.write(path, data)
    host.check(APT_UPDATE, timeout_s=240)
    for mend in dict.fromkeys(row.mend for row in rows if row.what in modules or row.what.startswith("grub.cfg: ")):
        if mend:
            host.check(mend, timeout_s=400)
    code, rows = look(host)
    waiting = {f"kernel: {name}" for name, _ in settings.KERNEL_PARAMETERS}
    assert (code, faults(rows)) == (1, {(what, WRONG) for what in {*waiting, "huge pages"}} | TRUE_HERE)
    assert {row.mend for row in rows if row.what in waiting} == {"reboot"}
    host.reboot()
    await_ready(host)
    code, rows = look(host)
    assert (code, faults(rows)) == (0, TRUE_HERE)
