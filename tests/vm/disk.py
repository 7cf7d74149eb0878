"""What does somebody make who starts from a bare Debian? A partitioned disk with GRUB, and the package on it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.packaging_chroot.root import dependencies

from . import recipe
from .building import APART, CUSTOMIZE, build_tree, debian_mirror, run
from .cache import ensure, key_of
from .image import BootImage
from .progress import Say, say_on_stderr, timed
from .recipe import Distribution

PACKAGES = (
    "linux-image-amd64", "initramfs-tools", "zstd", "grub-pc", "systemd-sysv", "dbus", "iproute2", "procps", "login",
    "python3",
)  # fmt: skip
DISK_BYTES, FIRST_SECTOR, SECTOR_BYTES = 3 << 30, 2048, 512

# As a cloud image has them; what is said here of huge pages is what the package has to win against.
CLOUD_SETTINGS = """\
GRUB_TIMEOUT=0
GRUB_TERMINAL=serial
GRUB_CMDLINE_LINUX="console=tty0 console=ttyS0 net.ifnames=0 no_timer_check fsck.mode=skip"
GRUB_CMDLINE_LINUX_DEFAULT="quiet transparent_hugepage=never"
"""
_FILES = {
    "/etc/default/grub.d/50-cloudimg-settings.cfg": CLOUD_SETTINGS,
    "/etc/fstab": "LABEL=root / ext4 defaults 0 1\n",
}

# $1 is the disk, $2 an empty folder, $3 the package. With a /dev of its own, which has what udev would make there, and
# nothing else of the builder's. The loop device goes with the mount.
_INSTALL = r"""
loop=$(losetup --find --show "$1")
partx --delete "$loop" 2>/dev/null || true  # of who had it before
partx --add "$loop"  # by hand: not every kernel reads partition tables
mount "${loop}p1" "$2" || { losetup --detach "$loop"; exit 1; }
losetup --detach "$loop"
cd "$2"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs dev
for node in null zero full random urandom tty "${loop#/dev/}" "${loop#/dev/}p1"; do cp -a "/dev/$node" dev; done
mkdir -p dev/disk/by-uuid
ln -s "../../${loop#/dev/}p1" "dev/disk/by-uuid/$(blkid -o value -s UUID "${loop}p1")"
printf '#!/bin/sh\nexit 101\n' > usr/sbin/policy-rc.d
chmod 755 usr/sbin/policy-rc.d
package="tmp/$(basename "$3")"
cp "$3" "$package"
in_image() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive chroot . "$@"
}
in_image grub-install --target=i386-pc "$loop"
in_image update-grub
cp boot/grub/grub.cfg root/grub.cfg.before
in_image apt-get install --yes --no-install-recommends -o Dpkg::Use-Pty=0 "/$package" >root/install.log
rm "$package" usr/sbin/policy-rc.d
cd /
umount -R "$2"
partx --delete "$loop" 2>/dev/null || true
"""


@dataclass(frozen=True)
class Partition:
    """The one partition of a disk, as a record of the boot sector."""

    first_sector: int
    sectors: int

    def boot_sector(self) -> bytes:
        """Without code, which is GRUB's to write. 0x83 is Linux; 0xfe and 0xffff leave the old geometry alone."""
        record = b"\x80\xfe\xff\xff\x83\xfe\xff\xff"
        record += self.first_sector.to_bytes(4, "little") + self.sectors.to_bytes(4, "little")
        return bytes(446) + record + bytes(48) + b"\x55\xaa"


def disk_image(distribution: Distribution, package: Path, say: Say = say_on_stderr) -> BootImage:
    """A disk that boots by itself, built by someone who installs the package in a chroot and does nothing else."""
    bare = _bare_disk(distribution, dependencies(package), say)
    key = key_of(bare.parent.name, _INSTALL, package.read_bytes())

    def build(folder: Path) -> None:
        disk, mount_point = folder / "disk", folder / "mnt"
        mount_point.mkdir()
        with timed(say, f"installing GRUB and {package.name} on a {distribution.name} disk"):
            run(["cp", "--sparse=always", "--reflink=auto", str(bare), str(disk)])
            run([*APART, "sh", "-euc", _INSTALL, "sh", str(disk), str(mount_point), str(package.resolve())])
        mount_point.rmdir()

    return BootImage(ensure(f"{distribution.name}-disk", key, build).path / "disk")


def _bare_disk(distribution: Distribution, needed: Sequence[str], say: Say) -> Path:
    """One partition with a bare distribution, and all that the package needs but the package; nothing boots it yet."""
    packages = (*PACKAGES, *needed)
    files = {**recipe.render_files(distribution), **_FILES}
    made_of = [recipe.RECIPE, debian_mirror(), packages, recipe.MASKED, files, DISK_BYTES, CUSTOMIZE]

    def build(folder: Path) -> None:
        with timed(say, f"building a bare {distribution.name} disk (once, about four minutes)") as tell:
            tree = build_tree(distribution, packages, ("systemd-timesyncd.service",), files, folder, tell)
            tell("writing the disk")
            disk = folder / "disk"
            partition = Partition(FIRST_SECTOR, DISK_BYTES // SECTOR_BYTES - FIRST_SECTOR)
            with disk.open("wb") as file:
                file.write(partition.boot_sector())
                file.truncate(DISK_BYTES)
            where = ["-E", f"offset={FIRST_SECTOR * SECTOR_BYTES}", "-d", str(tree)]
            run(["mke2fs", "-q", "-t", "ext4", "-L", "root", *where, str(disk), f"{partition.sectors // 2}k"])
            shutil.rmtree(tree)

    key = key_of(distribution.name, json.dumps(made_of))
    return ensure(f"{distribution.name}-bare-disk", key, build).path / "disk"
