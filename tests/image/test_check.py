"""Does `tpuagent check` find each thing that is wrong, name who did it, and say what mends it?"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.machine import Machine
from tests.image.trees import LINE, SOCKETS, add_running, install, put
from tests.test_cli import somebody_else
from tpuagent.devices.pci import GENERATIONS
from tpuagent.image import limiting, settings
from tpuagent.image.check import Wants, look
from tpuagent.image.rows import NOT_CHECKED, OK, UNKNOWN, WARNING, WRONG, Row, exit_code

IDS = tuple(str(generation.ids) for generation in GENERATIONS)
LATE = "/etc/default/grub.d/zzz-site.cfg"
Spoil = Callable[[str], None]


def rows(machine: Machine, **wants: Any) -> tuple[Row, ...]:
    return look(machine.host, Wants(IDS, **wants), running=True)


def faults(found: tuple[Row, ...]) -> list[Row]:
    return [row for row in found if row.verdict not in (OK, NOT_CHECKED)]


def test_a_good_machine_has_nothing_to_mend(good: Machine) -> None:
    found = rows(good)
    assert faults(found) == []
    assert [row for row in found if row.mend] == []
    assert exit_code(found) == 0


def write(path: str, text: str, mode: int = 0o644) -> Spoil:
    return lambda root: put(root, path, text, mode)


def delete(path: str) -> Spoil:
    return lambda root: os.unlink(root + path)


def mask(path: str) -> Spoil:
    def spoil(root: str) -> None:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        os.symlink("/dev/null", root + path)

    return spoil


GRUB_OFF = LINE.replace("intel_iommu=on,sm_on", "intel_iommu=off")


@pytest.mark.parametrize(
    ("spoil", "what", "verdict", "found", "mend"),
    [
        (write("/proc/cmdline", f"{LINE} idle=halt"), "kernel: idle", WRONG, "halt", "reboot"),
        (write("/proc/cmdline", "quiet #" + LINE.replace(" ", "#")), "kernel: idle", WRONG, "not set", "reboot"),
        (write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"), "huge pages", WRONG,
         "always [madvise] never", "echo always"),
        (write(settings.GRUB_CONFIGURATION, f"menuentry 'x' {{\nlinux /vmlinuz {GRUB_OFF}\n}}"),
         "grub.cfg: intel_iommu", WRONG, "off in 1 of 1", "update-grub"),
        (write("/etc/security/limits.d/99-site.conf", "* hard memlock 64"), "session users: memlock", WRONG,
         "64 (/etc/security/limits.d/99-site.conf:1)", "sed -i '1s/^/#/' /etc/security/limits.d/99-site.conf"),
        (write("/etc/security/limits.d/a b.conf", "#\n* hard memlock 64\n* soft memlock 64"),
         "session users: memlock", WRONG,
         "64 (/etc/security/limits.d/a b.conf:3)", "sed -i '2,3s/^/#/' '/etc/security/limits.d/a b.conf'"),
        (write("/etc/security/limits.d/99-site.conf", "* - nofile unlimited"), "session users: nofile", WRONG,
         "PAM the login", "sed -i '1s/^/#/'"),
        (write(settings.LIMITS_FILE, "* - memlock unlimited\n* - nofile 100000"), "session root: memlock", WRONG,
         "no line", f"cp /usr/share/tpu-agent/50-tpu-agent.conf {settings.LIMITS_FILE}"),
        (delete(settings.LIMITS_FILE), "session users: nofile", WARNING, "no line", "cp /usr/share/tpu-agent/"),
        (write("/etc/security/limits.d/99-site.conf", "ann hard nofile 10"), "session ann: nofile", WARNING, "10",
         "sed -i '1s/^/#/'"),
        (write("/etc/pam.d/sshd", "session required pam_unix.so"), "PAM: sshd", WRONG, "not applied", "pam_limits"),
        (write("/etc/systemd/system.conf.d/99.conf", "[Manager]\nDefaultLimitMEMLOCK=8M"), "services: memlock", WRONG,
         "8M (/etc/systemd/system.conf.d/99.conf:2)",
         "sed -i '2s/^/#/' /etc/systemd/system.conf.d/99.conf"),
        (write("/etc/systemd/system.conf.d/99.conf", "[Manager]\nDefaultLimitMEMLOCK=8M\nDefaultLimitMEMLOCK="),
         "services: memlock", WRONG, "8M (/etc/systemd/system.conf.d/99.conf:2)", "sed -i '2s/^/#/'"),
        (write("/etc/systemd/system.conf.d/99.conf", "[Manager]\nDefaultLimitMEMLOCK=\nDefaultLimitNOFILE=1K"),
         "services: memlock", OK, "infinity (/usr/lib", ""),
        (mask(settings.SWITCHED_OFF_BY[settings.SYSTEMD_FILE]), "services: nofile", WARNING, "systemd's own",
         "rm /etc/systemd/system.conf.d/50-tpu-agent.conf"),
        (mask(settings.SWITCHED_OFF_BY[settings.MODPROBE_FILE]), "vfio-pci ids=", WARNING, "the agent binds them",
         "rm /etc/modprobe.d/00-tpu-agent.conf"),
        (mask(settings.SWITCHED_OFF_BY[settings.MODULES_FILE]), "module vfio-pci", WARNING, "no modules-load.d",
         "rm /etc/modules-load.d/tpu-agent.conf"),
        (write("/etc/modprobe.d/vfio.conf", "options vfio-pci ids=10de:1"), "vfio-pci ids=", WARNING,
         "/etc/modprobe.d/vfio.conf:1", "sed -i '1s/ids="),
        (write("/etc/modprobe.d/vfio.conf", 'options vfio-pci ids="10de:1,10de:2"'), "vfio-pci ids=", WARNING,
         "/etc/modprobe.d/vfio.conf:1", "sed -i '1s/ids="),
        (write("/etc/modprobe.d/hard.conf", "install vfio-pci /bin/false"), "module vfio-pci", WRONG,
         "/etc/modprobe.d/hard.conf:1", "sed -i '1s/^/#/' /etc/modprobe.d/hard.conf"),
        (delete("/etc/systemd/system/multi-user.target.wants/tpu-agent.service"), "tpu-agent.service", WRONG,
         "not enabled", "systemctl enable tpu-agent.service"),
        (mask("/etc/systemd/system/tpu-agent.service"), "tpu-agent.service", WRONG, "masked",
         "systemctl unmask tpu-agent.service; systemctl enable"),
        (write("/proc/net/unix", SOCKETS.replace("00010000", "00000000")), "container engine", WRONG, "nobody listens",
         "systemctl enable --now docker.socket"),
        (delete("/proc/net/unix"), "container engine", WRONG, "nobody listens", "systemctl enable --now docker.socket"),
        (write("/proc/net/unix", SOCKETS.replace("/run/d", "/var/run/d")), "container engine", OK, "docker", ""),
        (delete("/usr/bin/docker"), "container engine", OK, "docker", ""),
        (mask("/etc/systemd/system/docker.service"), "container engine", WRONG, "docker is masked",
         "systemctl unmask docker.service docker.socket; systemctl enable --now docker.service docker.socket"),
        (delete("/usr/bin/gcloud"), "gcloud", WARNING, "missing", "snap install"),
        (write("/etc/systemd/system/multi-user.target.wants/vbarcontrolagent.service", ""), "stock vBar", WARNING,
         "is enabled", "systemctl disable --now vbarcontrolagent.service"),
        (write("/snap/vbarcontrolagent/current", ""), "stock vBar", WARNING, "snap", "snap remove"),
        (write("/etc/udev/rules.d/99-tpu.rules", 'ACTION=="add", ATTR{vendor}=="0x1ae0", RUN+="/opt/bind.sh %k"'),
         "udev rule by hand", WARNING, "runs /opt/bind.sh", "rm -f /etc/udev/rules.d/99-tpu.rules /opt/bind.sh"),
        (write("/etc/udev/rules.d/99-tpu.rules", 'ATTR{vendor}=="0x1ae0", RUN+="/bin/sh -c true"'),
         "udev rule by hand", WARNING, "runs /bin/sh", "rm -f /etc/udev/rules.d/99-tpu.rules"),
        (write("/usr/lib/udev/rules.d/99-tpu.rules", 'ATTR{vendor}=="0x1ae0", RUN+="/opt/bind.sh %k"'),
         "udev rule by hand", WARNING, "runs /opt/bind.sh", "ln -s /dev/null /etc/udev/rules.d/99-tpu.rules"),
        (write("/var/lib/cloud/scripts/per-boot/tpu.sh", "echo A=b >>/etc/environment", 0o755), "script by hand",
         WARNING, "/etc/environment", "chmod -x /var/lib/cloud/scripts/per-boot/tpu.sh"),
        (write("/etc/cloud/cloud.cfg.d/99.cfg", "runcmd: [echo A=b >>/etc/environment]"), "script by hand", WARNING,
         "/etc/environment", "mv /etc/cloud/cloud.cfg.d/99.cfg /etc/cloud/cloud.cfg.d/99.cfg.off"),
        (write("/etc/default/grub", 'GRUB_CMDLINE_LINUX="idle=poll"'), "grub by hand", WARNING, "idle",
         "/etc/default/grub; update-grub"),
        (write("/etc/security/limits.conf", "* - memlock unlimited"), "limits by hand", WARNING, "lines 1",
         "sed -i '1s/^/#/' /etc/security/limits.conf"),
        (write("/etc/environment", "A=1\nA=1\nB=2\n"), "/etc/environment", WARNING, "lines: 1",
         "sed -i '1d' /etc/environment"),
        (write("/etc/environment", "A=1\nB=2\n#\n\nA=3\nA=1\nB=2\n#\n\n B=2\n"), "/etc/environment", WARNING,
         "lines: 3",
         "sed -i '1,2d;7d' /etc/environment"),
        (write("/etc/udev/rules.d/99-tpu.rules", 'ATTR{vendor}=="0x1ae0", RUN+="/bin/bash /opt/bind.sh %k"'),
         "udev rule by hand", WARNING, "runs /opt/bind.sh", "rm -f /etc/udev/rules.d/99-tpu.rules /opt/bind.sh"),
        (write("/etc/systemd/system/tpu.service", "ExecStart=docker run gcr.io/p/vbar_control_agent:1"),
         "script by hand", WARNING, "vbar_control_agent", "systemctl disable --now tpu.service; mv "),
        (write("/etc/cron.d/tpu", "@reboot root curl http://metadata/attributes/tpu-env"), "script by hand", WARNING,
         "/etc/cron.d/tpu is about attributes/tpu-env", "mv /etc/cron.d/tpu /etc/cron.d/tpu.off"),
    ],
)  # fmt: skip
def test_each_spoiled_setting_is_a_row_of_its_own(
    good: Machine, spoil: Spoil, what: str, verdict: str, found: str, mend: str
) -> None:
    spoil(good.root)
    mine = [row for row in rows(good) if row.what == what and row.verdict == verdict]
    assert mine, [row for row in rows(good) if row.what == what]
    assert found in mine[0].found
    assert mend in mine[0].mend
    if carry_out(mine[0].mend, good.root):
        assert what not in {row.what for row in faults(rows(good))}


def carry_out(mend: str, root: str) -> bool:
    """Run the part of a command that edits files, in this root; whether there was one."""
    edits = [part for part in mend.split("; ") if re.match(r"sed |mv |chmod |rm -f |ln |rm /etc/(systemd|mod)", part)]
    os.makedirs(f"{root}/etc/udev/rules.d", exist_ok=True)
    for part in edits:
        below = re.sub(r"(?<= )('?)(?=/(etc|opt|var)/)", rf"\1{root}", part)
        subprocess.run(["sh", "-euc", below], check=True)
    return bool(edits)


def test_comments_and_other_rules_of_the_vendor_are_no_leftovers(good: Machine) -> None:
    put(good.root, "/etc/udev/rules.d/70-net.rules", 'ATTR{vendor}=="0x1ae0", NAME="ens4"\n#1ae0 RUN+="/x"\n')
    put(good.root, "/var/lib/cloud/scripts/per-boot/a.sh", "# >>/etc/environment\n. /etc/environment\ntrue\n", 0o755)
    put(good.root, "/var/lib/cloud/scripts/per-boot/off.sh", "echo A=b >>/etc/environment\n", 0o644)
    put(good.root, "/etc/cloud/cloud.cfg.d/99.cfg.off", "echo A=b >>/etc/environment\n")
    put(good.root, "/etc/systemd/system/job.service", "EnvironmentFile=-/etc/environment\nExecStart=/opt/job.sh\n")
    put(good.root, "/etc/systemd/system/job.service.d/more.conf", "[Service]\n")
    put(good.root, "/opt/job.sh", "true\n")
    assert faults(rows(good)) == []


def test_a_script_that_a_unit_runs_is_looked_into(good: Machine) -> None:
    put(good.root, "/etc/systemd/system/tpu.service", "ExecStart=/bin/sh '/opt/tpu/boot.sh' now\n")
    put(good.root, "/opt/tpu/boot.sh", "curl http://metadata/attributes/tpu-env\n")
    (row,) = faults(rows(good))
    assert (
        row.found == "/etc/systemd/system/tpu.service runs /opt/tpu/boot.sh: attributes/tpu-env, which the agent does"
    )


def test_the_daemon_of_docker_without_its_command_is_an_engine(good: Machine) -> None:
    os.rename(good.root + "/usr/bin/docker", good.root + "/usr/bin/dockerd")
    put(good.root, "/proc/net/unix", "Num RefCount\n")
    assert "docker, and nobody listens on its socket" in [row.found for row in rows(good)]


def test_who_overrides_our_parameter_is_named(good: Machine) -> None:
    put(good.root, LATE, 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT transparent_hugepage=never"\n')
    put(good.root, settings.GRUB_CONFIGURATION, f"menuentry x {{\nlinux /v {LINE} transparent_hugepage=never\n}}\n")
    (row,) = faults(rows(good))
    assert (row.what, row.verdict) == ("grub.cfg: transparent_hugepage", WRONG)
    assert row.found.endswith(f"overridden by {LATE}")
    assert row.mend == f"mv {LATE} /etc/default/grub.d/zy-zzz-site.cfg; update-grub"
    carry_out(row.mend, good.root)
    (row,) = faults(rows(good))
    assert row.mend == "update-grub"


def test_who_sets_the_whole_line_anew_is_named_and_comes_first_then(good: Machine) -> None:
    put(good.root, LATE, 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n')
    put(good.root, settings.GRUB_CONFIGURATION, "menuentry x {\nlinux /v root=/dev/sda1 quiet\n}\n")
    found = faults(rows(good))
    assert {row.mend for row in found} == {f"mv {LATE} /etc/default/grub.d/zy-zzz-site.cfg; update-grub"}
    carry_out(found[0].mend, good.root)
    assert {row.mend for row in faults(rows(good))} == {"update-grub"}


@pytest.mark.parametrize("spoil", [delete(settings.GRUB_DROP_IN), write(settings.GRUB_DROP_IN, "\n")])
def test_a_parameter_that_is_switched_off_is_a_warning(good: Machine, spoil: Spoil) -> None:
    spoil(good.root)
    put(good.root, "/proc/cmdline", "quiet")
    put(good.root, settings.GRUB_CONFIGURATION, "menuentry x {\nlinux /v root=/dev/sda1 quiet\n}\n")
    found = rows(good)
    assert {row.verdict for row in faults(found)} == {WARNING}
    assert exit_code(found) == 0
    mends = {row.mend for row in faults(found) if row.what.startswith("grub.cfg")}
    assert mends == {f"cp /usr/share/tpu-agent/zz-tpu-agent.cfg {settings.GRUB_DROP_IN}; update-grub"}


def test_excluded_functions_that_the_kernel_binds_all_the_same_are_named(good: Machine) -> None:
    (row,) = faults(rows(good, excluded=("0000:00:04.0",)))
    assert (row.what, row.verdict) == ("vfio-pci ids=", WARNING)
    assert "0000:00:04.0" in row.found
    assert row.mend == "ln -sf /dev/null /etc/modprobe.d/00-tpu-agent.conf"
    mask(settings.SWITCHED_OFF_BY[settings.MODPROBE_FILE])(good.root)
    assert "excluded" not in "".join(row.found for row in rows(good, excluded=("0000:00:04.0",)))


@pytest.mark.parametrize(
    ("answers", "verdict"),
    [
        (("infinity", "100000"), OK),
        (("8388608", "1024"), WRONG),
        ((None, None), OK),
        (("18446744073709551615", "524288"), OK),
    ],
)
def test_the_running_systemd_has_the_last_word(good: Machine, answers: tuple[str | None, ...], verdict: str) -> None:
    asked = dict(zip(("DefaultLimitMEMLOCKSoft", "DefaultLimitNOFILESoft"), answers, strict=True))
    found = tuple(limiting.check_services(good.host, asked.__getitem__))
    assert {row.verdict for row in found} == {verdict}
    assert {row.mend for row in found} == {"systemctl daemon-reload" if verdict == WRONG else ""}


@pytest.mark.parametrize("listening", ["/run/podman/podman.sock", ""])
def test_podman_is_enough_where_docker_is_masked_and_docker_is_named_where_neither_answers(
    good: Machine, listening: str
) -> None:
    put(good.root, "/usr/bin/podman", "", 0o755)
    put(good.root, "/proc/net/unix", SOCKETS.replace("/run/docker.sock", listening))
    mask("/etc/systemd/system/docker.service")(good.root)
    found = [row.found for row in rows(good) if row.what == "container engine"]
    assert found == [f"podman ({listening})" if listening else "docker is masked"]


def test_no_container_needs_no_engine(good: Machine) -> None:
    os.unlink(good.root + "/proc/net/unix")
    assert faults(rows(good, engine_needed=False)) == []


def test_a_file_that_may_not_be_read_is_unknown_and_not_wrong() -> None:
    with tempfile.TemporaryDirectory() as root:  # a folder of pytest's own is closed to others
        os.chmod(root, 0o755)
        machine = Machine.create(f"{root}/machine")
        install(machine.root)
        add_running(machine)
        put(machine.root, "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y\n")
        os.chmod(machine.root + settings.GRUB_CONFIGURATION, 0)
        with somebody_else():
            found = rows(machine)
    (row,) = faults(found)
    assert (row.verdict, row.mend) == (UNKNOWN, "sudo tpuagent check")
    assert exit_code(found) == 2
