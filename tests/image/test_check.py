"""Does the check find each thing that is wrong, name what mends it, and leave alone what is right?"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.fakes.machine import Machine
from tpuagent import cli
from tpuagent.host import Host
from tpuagent.image import settings
from tpuagent.image.checks import GRUB_DEFAULTS, THP
from tpuagent.image.tree import Tree

CONFIGURED = settings.render_kernel_parameters()
INSTALLED = {
    settings.GRUB_DROP_IN: "grub.cfg",
    settings.LIMITS_FILE: "limits.conf",
    settings.SYSTEMD_FILE: "system.conf",
    settings.MODULES_FILE: "modules-load.conf",
    settings.MODPROBE_FILE: "modprobe.conf",
    settings.UDEV_FILE: "60-tpu-agent.rules",
}
KERNEL = "/usr/lib/modules/6.1.0"
Put = Callable[[str, str], None]


def grub(parameters: str) -> str:
    return f"menuentry 'Debian' {{\n  linux /vmlinuz root=/dev/sda1 ro {parameters}\n}}\n"


@pytest.fixture
def good(machine: Machine) -> Machine:
    """A machine as the package makes it, running, with two functions that are ready."""
    put = machine.tree.put
    for path, name in INSTALLED.items():
        put(path, (REPOSITORY / "systemd" / name).read_text())
    put("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet {CONFIGURED}\n")
    put(settings.GRUB_CONFIGURATION, grub(f"quiet {CONFIGURED}"))
    put(GRUB_DEFAULTS, 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    put(THP, "[always] madvise never\n")
    put("/etc/systemd/system/multi-user.target.wants/tpu-agent.service", "")
    os.unlink(machine.tree.at("/etc/systemd/system/multi-user.target.wants/tpu-agent.service"))
    os.symlink("/usr/lib/systemd/system/tpu-agent.service",
               machine.tree.at("/etc/systemd/system/multi-user.target.wants/tpu-agent.service"))  # fmt: skip
    for program in ("dockerd", "gcloud", "python3"):
        put(f"/usr/bin/{program}", "", 0o755)
    for module in settings.MODULES:
        put(f"/sys/module/{module.replace('-', '_')}/initstate", "live\n")
    put(f"{KERNEL}/modules.dep", "kernel/drivers/vfio/pci/vfio-pci.ko.xz:\nkernel/drivers/vfio/vfio_iommu_type1.ko:\n")
    machine.add_function("v6e")
    machine.add_function("v5p")
    assert cli.main(["bind", "--all"], host=machine.host) == 0
    assert cli.main(["environment"], host=machine.host) == 0
    return machine


def findings(machine: Machine, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code, and what is not good."""
    capsys.readouterr()
    code = cli.main(["check", "--json", *options], host=machine.host)
    shown: list[dict[str, str]] = json.loads(capsys.readouterr().out)
    assert {frozenset(one) for one in shown} == {frozenset({"what", "expected", "found", "verdict", "mend"})}
    return code, [one for one in shown if one["verdict"] not in ("ok", "skipped")]


def test_nothing_is_wrong_with_a_machine_as_the_package_makes_it(
    good: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings(good, capsys) == (0, [])


def test_nothing_is_wrong_with_an_image_as_the_package_makes_it(
    good: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert findings(good, capsys, "--image", good.root) == (0, [])


DOCUMENTED_RULE = 'ACTION=="add", ATTR{vendor}=="0x1ae0", ATTR{device}=="0x006f", RUN+="/usr/local/bin/bind.sh %k"\n'
# What is put where, and what then is wrong: the finding, what was found, and what mends it.
SABOTAGED = {
    "another value on the running kernel": (
        "/proc/cmdline", f"{CONFIGURED} idle=halt", "running kernel: idle", "idle=halt", "reboot"),
    "a longer name": (
        "/proc/cmdline", CONFIGURED.replace("idle", "xidle"), "running kernel: idle", "not set", "reboot"),
    "a grub.cfg of before": (settings.GRUB_CONFIGURATION, grub("quiet"), "grub.cfg: idle", "not set", "update-grub"),
    "a file that overrides": (
        settings.GRUB_CONFIGURATION, grub(f"{CONFIGURED} idle=nomwait"), "grub.cfg: idle", "idle=nomwait",
        "update-grub"),
    "huge pages": (THP, "always [madvise] never\n", "transparent huge pages", "madvise", f"echo always > {THP}"),
    "a limit": (
        "/etc/security/limits.d/90-site.conf", "* hard memlock 64\n", "session of a user: memlock",
        "unlimited:64, by /etc/security/limits.d/90-site.conf:1", "take the line"),
    "a limit that locks out": (
        "/etc/security/limits.d/90-site.conf", "root - nofile unlimited\n", "session of root: nofile",
        "keeps everybody from logging in", "limits.d/90-site.conf:1"),
    "systemd": (
        "/etc/systemd/system.conf.d/99-site.conf", "[Manager]\nDefaultLimitMEMLOCK=8M\n", "services: memlock",
        "8192, by /etc/systemd/system.conf.d/99-site.conf", "take DefaultLimitMEMLOCK out of"),
    "a udev rule": (
        "/etc/udev/rules.d/99-tpu.rules", DOCUMENTED_RULE, "udev rule of a set-up by hand",
        "/etc/udev/rules.d/99-tpu.rules", "rm /etc/udev/rules.d/99-tpu.rules; udevadm"),
    "a script": (
        "/var/lib/cloud/scripts/per-boot/tpu.sh", "curl http://metadata/attributes/tpu-env > x\n",
        "script of a set-up by hand", "per-boot/tpu.sh", "rm "),
    "a unit": (
        "/etc/systemd/system/vbar.service", "[Service]\nExecStart=docker run x/vbar_control_agent:1\n",
        "unit of a set-up by hand", "vbar.service", "systemctl disable --now vbar.service"),
    "a stock agent": (
        "/snap/vbarcontrolagent/current/x", "", "stock agents beside vbar", "snap remove vbarcontrolagent", "see"),
    "a variable": (
        "/etc/environment", "CLOUDSDK_PYTHON=/usr/bin/nothing\n", "/etc/environment", "GCS_RESOLVE",
        "tpuagent environment"),
    "a configuration": (
        "/etc/tpu-agent/config.yaml", "devices: {mode: 666}\n", "configuration", "devices.mode", "mend it"),
}  # fmt: skip


@pytest.mark.parametrize("sabotage", SABOTAGED.values(), ids=SABOTAGED)
def test_each_thing_that_is_wrong_is_found_and_named_with_what_mends_it(
    good: Machine, capsys: pytest.CaptureFixture[str], sabotage: tuple[str, str, str, str, str]
) -> None:
    path, text, what, found, mend = sabotage
    good.tree.put(path, text)
    code, wrong = findings(good, capsys)
    assert code == 1
    (one,) = [one for one in wrong if one["what"] == what]
    assert one["verdict"] == "wrong"
    assert found in one["found"]
    assert mend in one["mend"]


def test_the_file_that_overrides_is_named(good: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    good.tree.put(settings.GRUB_CONFIGURATION, grub(f"{CONFIGURED} idle=nomwait"))
    good.tree.put("/etc/default/grub.d/zzz-site.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="$X idle=nomwait"\n')
    _, wrong = findings(good, capsys)
    assert wrong[0]["found"] == "idle=nomwait, by /etc/default/grub.d/zzz-site.cfg"
    assert wrong[0]["mend"] == "take idle out of /etc/default/grub.d/zzz-site.cfg, then update-grub"


@pytest.mark.parametrize("path", sorted(set(INSTALLED) - {settings.MODULES_FILE, settings.UDEV_FILE}))
def test_a_file_of_the_package_that_is_gone_is_brought_back(
    good: Machine, capsys: pytest.CaptureFixture[str], path: str
) -> None:
    good.tree.remove(path)
    good.tree.put(settings.GRUB_CONFIGURATION, grub("quiet"))
    _, wrong = findings(good, capsys)
    assert any("--reinstall" in one["mend"] for one in wrong)


def test_a_function_that_is_not_ready_is_wrong_and_a_released_one_a_warning(
    good: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["unbind", "00:04.0"], host=good.host) == 0
    code, wrong = findings(good, capsys)
    assert (code, wrong[0]["verdict"], wrong[0]["mend"]) == (0, "warning", "tpuagent bind 0000:00:04.0")
    good.chmod(good.node("0000:00:05.0"), 0o600)
    code, wrong = findings(good, capsys)
    assert code == 1
    assert {one["what"] for one in wrong} == {"function 0000:00:04.0 (v6e)", "function 0000:00:05.0 (v5p)"}


def test_lines_that_were_appended_at_every_boot_are_told(good: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    text = good.tree.text("/etc/environment") or ""
    good.tree.put("/etc/environment", text + "GCS_RESOLVE_REFRESH_SECS=60\nexport GCS_RESOLVE_REFRESH_SECS=60\n")
    code, wrong = findings(good, capsys)
    assert code == 0
    assert "GCS_RESOLVE_REFRESH_SECS is set again and again" in wrong[0]["found"]


def test_an_image_without_modules_is_wrong(good: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    good.tree.put(f"{KERNEL}/modules.dep", "kernel/net/x.ko:\n")
    good.tree.put(f"{KERNEL}/modules.builtin", "kernel/drivers/vfio/vfio_iommu_type1.ko\n")
    code, wrong = findings(good, capsys, "--image", good.root)
    assert code == 1
    assert [(one["what"], one["found"]) for one in wrong] == [("kernel 6.1.0: vfio-pci", "missing")]


@pytest.mark.parametrize("target", ["/etc/real.conf", "../../../../../../../etc/real.conf", "../real.conf"])
def test_a_link_in_an_image_leads_nowhere_but_to_the_image(tmp_path: Path, target: str) -> None:
    (tmp_path / "etc/security").mkdir(parents=True)
    (tmp_path / "etc/real.conf").write_text("inside\n")
    (tmp_path / "etc/security/limits.conf").symlink_to(target)
    (tmp_path / "etc/round").symlink_to("/etc/round")
    tree = Tree(Host(str(tmp_path)))
    assert tree.read("/etc/security/limits.conf") == "inside"
    assert tree.read("/etc/round") is None
    (tmp_path / "outside").symlink_to("/etc")
    assert tree.read("/outside/hostname") is None


def test_what_is_no_image_is_refused(machine: Machine, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.main(["check", "--image", str(tmp_path)], host=machine.host) == 2
    assert "has no etc" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_what_may_not_be_read_is_unknown(good: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    os.chmod(good.tree.at(settings.GRUB_CONFIGURATION), 0)
    code, wrong = findings(good, capsys)
    assert (code, wrong[0]["verdict"], wrong[0]["mend"]) == (2, "unknown", "sudo tpuagent check")


def test_a_person_sees_what_is_wrong_first_and_no_line_is_wider_than_the_terminal(
    good: Machine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    good.tree.put(THP, "always [madvise] never\n")
    capsys.readouterr()
    assert cli.main(["check"], host=good.host) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "wrong    transparent huge pages: madvise (expected: always)"
    assert lines[1].strip() == f"mend: echo always > {THP}"
    assert lines[-1].startswith("1 wrong, ")
    assert max(map(len, lines)) < 80
