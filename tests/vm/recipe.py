"""What a guest is made of: packages, units and small files, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RECIPE = "1"  # raise it when the way of building changes without any value below changing

QEMU_SUITE = "trixie"
QEMU_PACKAGES = ("qemu-system-x86", "ipxe-qemu")

IMAGE_SIZE = "4G"
USER = "tpuuser"
RUNNER_PORT = "tpuagent.test.runner"
RUNNER_PATH = "/usr/local/lib/tpu-agent-test/runner.py"
BOOTED_TARGET = "tpu-agent-test-booted.target"
SHELL_UNIT = "tpu-agent-test-shell.service"
NO_CONTAINERS_FILE = "/etc/tpu-agent/config.d/10-no-containers.yaml"
SHELL_ENVIRONMENT = "/run/tpu-agent-test-shell"

# The agent's dependencies are here so that installing its package needs no network.
PACKAGES = (
    "linux-image-amd64", "initramfs-tools", "zstd", "systemd-sysv", "udev", "dbus", "kmod", "iproute2",
    "procps", "less", "login", "pciutils", "ca-certificates", "openssl", "curl", "bash-completion",
    "grub2-common", "logrotate",
    "python3", "python3-pyudev", "python3-sdnotify", "python3-requests", "python3-yaml", "python3-structlog",
    "python3-pytest",
    "docker.io", "iptables", "docker-registry", "busybox-static", "podman", "crun",
)  # fmt: skip

# Each of these costs seconds of an emulated boot, or writes to the console, and no test is about it.
MASKED = (
    "serial-getty@ttyS0.service", "getty@tty1.service", "getty-static.service",
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "man-db.timer", "logrotate.timer", "systemd-networkd-wait-online.service",
    "systemd-networkd.service", "systemd-pcrphase.service", "systemd-pcrphase-sysinit.service",
    "grub-common.service", "grub-initrd-fallback.service", "modprobe@drm.service", "modprobe@efi_pstore.service",
)  # fmt: skip

# Docker starts when somebody first connects to its socket; the registry when a test starts it.
DISABLED = (
    "docker.service", "containerd.service", "docker-registry.service",
    "podman.service", "podman.socket", "podman-restart.service", "podman-auto-update.service",
    "podman-auto-update.timer",
)  # fmt: skip

# All that stands between the kernel and its root file system, and the port that the runner speaks on.
INITRD_MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "ext4")


@dataclass(frozen=True)
class Distribution:
    """A Debian release that guests run. `name` is its code name."""

    name: str
    packages: tuple[str, ...] = PACKAGES


BOOKWORM = Distribution("bookworm")
TRIXIE = Distribution("trixie", (*PACKAGES, "docker-cli"))  # what tests type is a package of its own there
DISTRIBUTIONS = (BOOKWORM, TRIXIE)

_RUNNER_UNIT = f"""\
[Unit]
Description=Runs what the test outside asks for
DefaultDependencies=no
After=systemd-remount-fs.service
Conflicts=shutdown.target
Before=shutdown.target

[Service]
ExecStart=/usr/bin/python3 -I {RUNNER_PATH} {RUNNER_PORT}
KillMode=process
OOMScoreAdjust=-1000
Restart=on-failure

[Install]
WantedBy=sysinit.target
"""

# Starting it waits until the boot is over: its job is ordered after the one of multi-user.target.
_BOOTED_TARGET = """\
[Unit]
Description=The boot is over
DefaultDependencies=no
After=multi-user.target
"""

_SHELL_UNIT = f"""\
[Unit]
Description=A root prompt on the serial console
After=multi-user.target
SuccessAction=poweroff
FailureAction=poweroff

[Service]
Environment=TERM=vt220 LINES=24 COLUMNS=80
EnvironmentFile=-{SHELL_ENVIRONMENT}
ExecStart=-/bin/sh -c 'stty rows $LINES columns $COLUMNS; exec agetty --autologin root --noissue ttyS0 $TERM'
Type=idle
StandardInput=tty
StandardOutput=tty
TTYPath=/dev/ttyS0
TTYReset=yes
UtmpIdentifier=ttyS0
"""

_MOTD = """\

  A virtual machine with emulated TPU functions and the tpu-agent package. Try:

    tpuagent devices        systemctl status tpu-agent       ls -l /dev/vfio
    tpuagent status         journalctl -u tpu-agent          lspci -nnk -d 1ae0:

  Leave with `poweroff`, `exit`, or Ctrl-A x.

"""


def render_files(distribution: Distribution) -> dict[str, str]:
    """Path in the guest → text."""
    host = f"tpu-{distribution.name}"
    units = "/etc/systemd/system"
    return {
        "/etc/hostname": f"{host}\n",
        "/etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {host}\n::1 localhost\n",
        "/etc/fstab": "",
        "/etc/resolv.conf": "",
        "/etc/motd": _MOTD,
        f"{units}/tpu-agent-test-runner.service": _RUNNER_UNIT,
        f"{units}/{BOOTED_TARGET}": _BOOTED_TARGET,
        f"{units}/{SHELL_UNIT}": _SHELL_UNIT,
        "/etc/systemd/journald.conf.d/test.conf": "[Journal]\nStorage=persistent\nRateLimitBurst=0\n",
        RUNNER_PATH: runner_source(),
    }


def runner_source() -> str:
    return Path(__file__).with_name("runner.py").read_text()
