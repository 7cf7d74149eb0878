"""Do the settings of the image come, get switched off and go as the documentation says, and does GRUB hear of it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuagent.image import settings

from .root import Root

pytestmark = pytest.mark.chroot

PARAMETERS = settings.render_kernel_parameters()
GRUB_CFG = settings.GRUB_CONFIGURATION

# As much of GRUB as a maintainer script sees: it reads the settings as the real one does, and names the kernel's line.
MKCONFIG = r"""#!/bin/sh
set -e
[ "$1" = -o ]
[ ! -e /etc/default/grub ] || . /etc/default/grub
for part in /etc/default/grub.d/*.cfg; do
    [ ! -e "$part" ] || . "$part"
done
{
    echo "linux /vmlinuz root=$(cat /root-device) ro $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"
    echo "linux /vmlinuz root=$(cat /root-device) ro single $GRUB_CMDLINE_LINUX"
} >"$2"
"""
UPDATE = f"#!/bin/sh\nexec grub-mkconfig -o {GRUB_CFG}\n"
BROKEN = "#!/bin/sh\necho 'grub-probe: error: cannot find a device for / (is /dev mounted?).' >&2\nexit 1\n"


def with_grub(root: Root, mkconfig: str = MKCONFIG) -> None:
    """An image that somebody has made bootable, with a `grub.cfg` from then."""
    root.write("/usr/sbin/grub-mkconfig", MKCONFIG, mode=0o755)
    root.write("/usr/sbin/update-grub", UPDATE, mode=0o755)
    root.write("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet console=tty0 console=ttyS0"\n')
    root.write("/root-device", "UUID=1234\n")
    root.shell("mkdir -p /boot/grub /etc/default/grub.d")
    root.run("update-grub")
    root.write("/usr/sbin/grub-mkconfig", mkconfig, mode=0o755)


def grub_cfg(root: Root) -> list[str]:
    return root.run("cat", GRUB_CFG).splitlines()


def said(printed: str) -> str:
    """The one line that the package has to say."""
    (line,) = [line for line in printed.splitlines() if line.startswith("tpu-agent: ")]
    return line


def test_an_image_with_grub_boots_with_the_parameters_from_then_on(root: Root, package: Path) -> None:
    with_grub(root)
    printed = root.install(package)
    assert said(printed) == "tpu-agent: grub.cfg is regenerated; the kernel parameters change with the next boot"
    normal, recovery = grub_cfg(root)
    assert normal.endswith(f" quiet console=tty0 console=ttyS0 {PARAMETERS}")
    assert "idle=poll" not in recovery


def test_without_grub_it_says_so_and_installs(root: Root, package: Path) -> None:
    assert "no grub.cfg here" in said(root.install(package))
    root.shell(f"test ! -e {GRUB_CFG}")


def test_a_grub_that_fails_breaks_no_installation_and_its_reason_is_shown(root: Root, package: Path) -> None:
    with_grub(root, BROKEN)
    before = grub_cfg(root)
    line = said(root.install(package))
    assert "cannot find a device for /" in line
    assert "next update-grub" in line
    assert grub_cfg(root) == before


def test_a_root_device_of_the_builder_does_not_get_into_the_image(root: Root, package: Path) -> None:
    with_grub(root)
    before = grub_cfg(root)
    root.write("/root-device", "/dev/loop7p1\n")
    assert "another root device" in said(root.install(package))
    assert grub_cfg(root) == before


def test_an_upgrade_leaves_a_grub_cfg_alone_that_has_the_parameters(
    root: Root, package: Path, later_package: Path
) -> None:
    with_grub(root)
    root.install(package)
    root.write("/usr/sbin/update-grub", BROKEN, mode=0o755)
    assert "tpu-agent: " not in root.install(later_package)


def test_a_deleted_setting_stays_deleted(root: Root, package: Path, later_package: Path) -> None:
    with_grub(root)
    root.install(package)
    root.run("rm", *settings.COPIED_FROM)
    root.run("update-grub")
    assert "tpu-agent: " not in root.install(later_package)
    root.shell("".join(f"test ! -e {path}; " for path in settings.COPIED_FROM))
    assert PARAMETERS not in root.run("cat", GRUB_CFG)


def test_purge_takes_the_parameters_from_grub_and_remove_leaves_them_as_configuration(
    root: Root, package: Path
) -> None:
    with_grub(root)
    before = grub_cfg(root)
    root.install(package)
    root.run("dpkg", "--remove", "tpu-agent")
    assert PARAMETERS in grub_cfg(root)[0]
    assert "regenerated" in said(root.run("dpkg", "--purge", "tpu-agent"))
    assert grub_cfg(root) == before


def test_a_purge_succeeds_without_grub_and_with_a_broken_one(root: Root, package: Path) -> None:
    with_grub(root)
    root.install(package)
    root.write("/usr/sbin/update-grub", BROKEN, mode=0o755)
    assert "update-grub failed" in said(root.run("dpkg", "--purge", "tpu-agent"))
    root.install(package)
    root.run("rm", "-r", "/boot/grub")
    assert "tpu-agent: " not in root.run("dpkg", "--purge", "tpu-agent")


def options(root: Root) -> list[str]:
    """What modprobe would give to vfio-pci, in its order."""
    return [line for line in root.run("modprobe", "--showconfig").splitlines() if line.startswith("options vfio_pci ")]


def test_modprobe_reads_the_ids_and_a_file_of_the_administrator_takes_them_away(installed: Root) -> None:
    (line,) = options(installed)
    assert line.count("1ae0:") == 6
    other = settings.SWITCHED_OFF_BY[settings.MODPROBE_FILE]
    installed.run("ln", "-s", "/dev/null", other)
    assert options(installed) == []


def test_ids_that_somebody_else_gives_come_last_and_count(installed: Root) -> None:
    installed.write("/etc/modprobe.d/10-gpu.conf", "options vfio-pci ids=10de:2204\n")
    assert "10de:2204" in options(installed)[-1]
