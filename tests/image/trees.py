"""A machine or an image with everything as it should be, for tests that then spoil one thing."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fakes.machine import Machine
from tpuagent.image import settings

REPOSITORY = Path(__file__).parents[2]
RELEASE = "6.1.0-fake"
LINE = f"root=/dev/sda1 ro {settings.render_kernel_parameters()}"
# Which file of the project is installed where.
SHIPPED = {
    "grub.cfg": settings.GRUB_DROP_IN,
    "limits.conf": settings.LIMITS_FILE,
    "system.conf": settings.SYSTEMD_FILE,
    "modules-load.conf": settings.MODULES_FILE,
    "modprobe.conf": settings.MODPROBE_FILE,
    "60-tpu-agent.rules": settings.UDEV_FILE,
}
# As the kernel lists them: one that listens, and a connection to it.
SOCKETS = """\
Num       RefCount Protocol Flags    Type St Inode Path
00000000: 00000002 00000000 00010000 0001 01 17 /run/docker.sock
00000000: 00000003 00000000 00000000 0001 03 18 /run/podman/podman.sock
"""
GRUB_CFG = f"""\
set timeout=5
menuentry 'Debian GNU/Linux' --class debian {{
	linux	/boot/vmlinuz-{RELEASE} {LINE}
	initrd	/boot/initrd.img-{RELEASE}
}}
submenu 'Advanced options' {{
	menuentry 'Debian GNU/Linux, with Linux {RELEASE} (recovery mode)' --class debian {{
		linux	/boot/vmlinuz-{RELEASE} root=/dev/sda1 ro single
	}}
}}
"""


def install(root: str) -> None:
    """The package's files, and what the distribution has around them."""
    for name, path in SHIPPED.items():
        target = Path(root + path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / "systemd" / name, target)
    put(root, settings.GRUB_CONFIGURATION, GRUB_CFG)
    put(root, "/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
    put(root, "/etc/security/limits.conf", "# nothing\n")
    put(root, "/etc/pam.d/sshd", "@include common-session\nsession    required     pam_limits.so\n")
    put(root, f"/lib/modules/{RELEASE}/modules.dep", "kernel/vfio/vfio-pci.ko.zst:\nkernel/vfio_iommu_type1.ko:\n")
    put(root, "/etc/group", "root:x:0:\n")
    put(root, "/etc/systemd/system/multi-user.target.wants/tpu-agent.service", "")
    for program in ("docker", "python3", "gcloud"):
        put(root, f"/usr/bin/{program}", "", 0o755)
    put(root, "/usr/sbin/update-grub", "", 0o755)


def put(root: str, path: str, text: str, mode: int = 0o644) -> None:
    """A file, with the folders above it."""
    target = Path(root + path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)


def add_running(machine: Machine) -> None:
    """What only a machine that runs has."""
    put(machine.root, "/proc/cmdline", f"BOOT_IMAGE=/boot/vmlinuz {LINE}\n")
    put(machine.root, "/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")
    put(machine.root, "/proc/net/unix", SOCKETS)
