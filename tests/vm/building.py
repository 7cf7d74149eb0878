"""How is a root folder built, and a step of a build run? With mmdebstrap; what a failed step printed last is shown."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import recipe
from .progress import Say
from .recipe import Distribution

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
TAIL_LINES = 25

# The mounts, and whatever the package starts, are in namespaces of their own and go with them, however this ends.
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")


class BuildError(Exception):
    """A step of a build failed; carries what the step printed last."""


def debian_mirror() -> str:
    """`TPUAGENT_VM_MIRROR`, else the Debian mirror that this machine's own apt uses."""
    named = os.environ.get("TPUAGENT_VM_MIRROR")
    if named:
        return named
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    for uri in found:
        if uri.rstrip("/").endswith("/debian"):
            return uri.rstrip("/")
    raise BuildError("cannot find a Debian mirror in apt's configuration; set TPUAGENT_VM_MIRROR to the URL of one")


# mmdebstrap calls this with the root as $1. What keeps the bootstrap fast must not shape what a guest does later.
CUSTOMIZE = r"""
rm -f "$1"/etc/dpkg/dpkg.cfg.d/99mmdebstrap
chroot "$1" useradd --create-home --shell /bin/bash "$2"
chroot "$1" systemd-machine-id-setup >/dev/null
mkdir -p "$1"/var/log/journal
chroot "$1" systemctl enable --quiet tpu-agent-test-runner.service
chroot "$1" systemctl disable --quiet $4
chroot "$1" systemctl mask --quiet $3
chroot "$1" systemctl set-default --quiet multi-user.target
touch -r "$1"/usr "$1"/etc/.updated "$1"/var/.updated  # or systemd does at boot what comes after an upgrade of /usr
"""


def build_tree(
    distribution: Distribution,
    packages: Sequence[str],
    disabled: Sequence[str],
    files: Mapping[str, str],
    folder: Path,
    tell: Say,
) -> Path:
    """The folder `tree` in `folder`: a distribution with these packages and files, as guests want it.

    `disabled` are units that the packages enable and that a boot has no need of.
    """
    tree, staged = folder / "tree", folder / "staged"
    for path, text in files.items():
        _write(staged / path.lstrip("/"), text)
    initramfs = staged / "usr/share/initramfs-tools"
    _write(initramfs / "conf.d/modules", "MODULES=list\nCOMPRESS=zstd\n")
    _write(initramfs / "modules.d/tpu-agent-test", "\n".join(recipe.INITRD_MODULES) + "\n")
    customize = folder / "customize"
    units = f"'{' '.join(recipe.MASKED)}' '{' '.join(disabled)}'"
    _write(customize, f'set -eu\nset -- "$1" {recipe.USER} {units}\n{CUSTOMIZE}')
    options = [
        "--variant=minbase",
        f"--include={','.join(packages)}",
        "--dpkgopt=force-unsafe-io",
        *(f"--dpkgopt=path-exclude=/usr/share/{junk}/*" for junk in ("man", "doc", "locale", "info")),
        f'--essential-hook=cp -r --no-preserve=ownership {staged}/usr "$1"/',
        f'--customize-hook=cp -r --no-preserve=ownership {staged}/. "$1"/',
        f'--customize-hook=sh {customize} "$1"',
    ]
    mmdebstrap(distribution.name, tree, options, [f"deb {debian_mirror()} {distribution.name} main"], tell)
    shutil.rmtree(staged)
    return tree


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def mmdebstrap(suite: str, tree: Path, options: list[str], lines: list[str], tell: Say) -> None:
    if not shutil.which("mmdebstrap"):
        raise BuildError("cannot build images for virtual machines: apt-get install mmdebstrap e2fsprogs")
    keyring = [f"--keyring={KEYRING}"] if KEYRING.exists() else []
    run(["mmdebstrap", "--mode=root", *keyring, *options, suite, str(tree), *lines], tell)


def run(argv: list[str], tell: Say | None = None) -> None:
    """Run one step to its end. Its last lines are the error when it fails; mmdebstrap's own headings are told."""
    lines: list[str] = []
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "TERM", *argv],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if tell and line.startswith("I: ") and not line.startswith("I: running --"):
                tell(line[3:].strip())
    if process.returncode:
        tail = "".join(lines[-TAIL_LINES:])
        raise BuildError(f"cannot build: {argv[0]} ended with {process.returncode}:\n{tail}")
