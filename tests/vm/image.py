"""What guests boot from: a QEMU root, a base image for each distribution, and that image with the package installed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import recipe, scenery
from .building import APART, CUSTOMIZE, BuildError, build_tree, debian_mirror, mmdebstrap, run
from .cache import Entry, ensure, key_of
from .progress import Say, say_on_stderr, timed
from .recipe import Distribution


@dataclass(frozen=True)
class BootImage:
    """A disk to boot from: the root file system, with its kernel and initrd beside it, or a whole one with GRUB."""

    root: Path
    kernel: Path | None = None
    initrd: Path | None = None


def qemu_root(say: Say = say_on_stderr) -> Path:
    """A folder to chroot into, with a QEMU that has `vfio-user-pci` (10.1 or newer)."""
    suite, mirror = recipe.QEMU_SUITE, debian_mirror()
    key = key_of(recipe.RECIPE, mirror, suite, *recipe.QEMU_PACKAGES)

    def build(folder: Path) -> None:
        pin = f"Package: *\nPin: release n={suite}-backports\nPin-Priority: 990\n"
        preferences = folder / "preferences"
        preferences.write_text(pin)
        hook = f"--setup-hook=mkdir -p $1/etc/apt/preferences.d && cp {preferences} $1/etc/apt/preferences.d/backports"
        lines = [f"deb {mirror} {suite} main", f"deb {mirror} {suite}-backports main"]
        options = ["--variant=apt", f"--include={','.join(recipe.QEMU_PACKAGES)}", hook]
        with timed(say, "building the QEMU root (once)") as tell:
            mmdebstrap(suite, folder / "root", options, lines, tell)
            for point in ("guest", "images"):
                (folder / "root" / point).mkdir()

    return ensure("qemu", key, build).path / "root"


def base_image(distribution: Distribution, say: Say = say_on_stderr) -> BootImage:
    """The distribution as a small cloud image has it, with the runner, without the package."""
    return _boot_image(_base(distribution, say), None)


def package_image(distribution: Distribution, package: Path, say: Say = say_on_stderr) -> BootImage:
    """The base image with `package` (a .deb) installed as an image build does it: in a chroot, nothing running.

    A drop-in switches vBar off: guests that are not about containers have no engine to wait for.
    """
    base = _base(distribution, say)
    no_containers = recipe.NO_CONTAINERS_FILE.lstrip("/")
    key = key_of(base.path.name, _INSTALL, no_containers, package.read_bytes())

    def build(folder: Path) -> None:
        with timed(say, f"installing {package.name} into a {distribution.name} image"):
            image = folder / "root.ext4"
            run(["cp", "--sparse=always", "--reflink=auto", str(base.path / "root.ext4"), str(image)])
            run([*APART, "sh", "-euc", _INSTALL, "sh", str(image), str(folder), str(package.resolve()), no_containers])

    return _boot_image(base, ensure(f"{distribution.name}-package", key, build))


def containers_image(distribution: Distribution, package: Path, engine: str, say: Say = say_on_stderr) -> BootImage:
    """An image with the package in its default configuration and what a guest about containers needs besides.

    `engine` is the commands that make a container engine start at boot: `scenery.DOCKER` or `scenery.PODMAN`.
    """
    below = package_image(distribution, package, say)
    base = _base(distribution, say)
    enable = f"{engine}; {scenery.ENABLE}; chown -R docker-registry: {scenery.STORAGE}; rm {recipe.NO_CONTAINERS_FILE}"
    key = key_of(below.root.parent.name, enable, _STAGE, *scenery.FINGERPRINT)

    def build(folder: Path) -> None:
        with timed(say, f"making a {distribution.name} image about containers"):
            busybox = folder / "busybox"
            run(["debugfs", "-R", f"dump /usr/bin/busybox {busybox}", str(below.root)])
            hosts = recipe.render_files(distribution)["/etc/hosts"]
            scenery.write_files(folder / "tree", busybox.read_bytes(), hosts)
            image = folder / "root.ext4"
            run(["cp", "--sparse=always", "--reflink=auto", str(below.root), str(image)])
            run([*APART, "sh", "-euc", _STAGE, "sh", str(image), str(folder), enable])
            shutil.rmtree(folder / "tree")
            busybox.unlink()

    kind = f"{distribution.name}-{'podman' if engine == scenery.PODMAN else 'docker'}"
    return _boot_image(base, ensure(kind, key, build))


def cloud_init_image(
    distribution: Distribution, user_data: str, files: Mapping[str, bytes], say: Say = say_on_stderr
) -> BootImage:
    """The base image with cloud-init, what that finds at the first boot, and `files`; without the package."""
    base = _base(distribution, say)
    seed = "/var/lib/cloud/seed/nocloud"
    everything = {
        "/etc/cloud/cloud.cfg.d/99-test.cfg": b"datasource_list: [NoCloud]\nnetwork: {config: disabled}\n",
        f"{seed}/meta-data": b"instance-id: test\n",
        f"{seed}/user-data": user_data.encode(),
        **files,
    }
    pieces = [piece for path, content in sorted(everything.items()) for piece in (path, content)]
    key = key_of(base.path.name, _CLOUD_INIT, _STAGE, *pieces)

    def build(folder: Path) -> None:
        with timed(say, f"installing cloud-init in a {distribution.name} image"):
            image = folder / "root.ext4"
            run(["cp", "--sparse=always", "--reflink=auto", str(base.path / "root.ext4"), str(image)])
            for path, content in everything.items():
                target = folder / "tree" / path.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            Path(folder / "tree/etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
            run([*APART, "sh", "-euc", _STAGE, "sh", str(image), str(folder), _CLOUD_INIT])
            shutil.rmtree(folder / "tree")

    return _boot_image(base, ensure(f"{distribution.name}-cloud-init", key, build))


_CLOUD_INIT = r"""
export DEBIAN_FRONTEND=noninteractive
mount -t proc proc /proc
apt-get update
apt-get install --yes --no-install-recommends -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confold cloud-init
umount /proc
rm -rf /var/lib/apt/lists/*
: >/etc/resolv.conf
"""
_STAGE = r"""
mkdir "$2/mnt"
mount -o loop "$1" "$2/mnt"
cp -r --no-preserve=ownership "$2/tree/." "$2/mnt/"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$2/mnt" sh -euc "$3"
umount "$2/mnt"
rmdir "$2/mnt"
"""
_INSTALL = r"""
mkdir "$2/mnt"
mount -o loop "$1" "$2/mnt"
cd "$2/mnt"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys  # what a maintainer script does to a kernel must not reach the builder's
mount --rbind /dev dev
mount -t tmpfs tmpfs run
printf '#!/bin/sh\nexit 101\n' > usr/sbin/policy-rc.d
chmod 755 usr/sbin/policy-rc.d
package="tmp/$(basename "$3")"
cp "$3" "$package"
env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
    chroot . apt-get install --yes --no-install-recommends -o Dpkg::Use-Pty=0 "/$package"
rm "$package" usr/sbin/policy-rc.d
mkdir -p "$(dirname "$4")"
printf 'containers: {vbar: {enabled: false}}\n' >"$4"
cd /
umount -R "$2/mnt"
rmdir "$2/mnt"
"""


def _base(distribution: Distribution, say: Say) -> Entry:
    mirror = debian_mirror()
    files = recipe.render_files(distribution)
    made_of = [distribution.packages, recipe.MASKED, recipe.DISABLED, recipe.INITRD_MODULES, recipe.IMAGE_SIZE, files]
    key = key_of(recipe.RECIPE, mirror, distribution.name, json.dumps(made_of), CUSTOMIZE)

    def build(folder: Path) -> None:
        with timed(say, f"building the {distribution.name} base image (once, about two minutes)") as tell:
            _build_base(distribution, files, folder, tell)

    return ensure(f"{distribution.name}-base", key, build)


def _boot_image(base: Entry, package: Entry | None) -> BootImage:
    return BootImage((package or base).path / "root.ext4", base.path / "vmlinuz", base.path / "initrd.img")


def _build_base(distribution: Distribution, files: dict[str, str], folder: Path, tell: Say) -> None:
    tree = build_tree(distribution, distribution.packages, recipe.DISABLED, files, folder, tell)
    tell("writing the file system")
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy((tree / name).resolve() if not (tree / name).is_symlink() else _inside(tree, name), folder / name)
    image = folder / "root.ext4"
    run(["mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", str(tree), str(image), recipe.IMAGE_SIZE])
    shutil.rmtree(tree)


def _inside(tree: Path, name: str) -> Path:
    """Where the link `name` of a root folder leads, read as the guest will read it."""
    return tree / os.readlink(tree / name).lstrip("/")


def newest_package(checkout: Path) -> Path:
    """The newest `dist/tpu-agent_*_all.deb` of a checkout."""
    built = sorted((checkout / "dist").glob("tpu-agent_*_all.deb"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise BuildError(f"no package in {checkout / 'dist'}: run `make deb` first")
    return built[-1]
