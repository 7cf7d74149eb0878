"""A bare Debian to install the package in: a cached root folder, and over it a layer for each test.

Nothing of a test is ever mounted where others see it: each command gets mounts, processes and network of its own, and
what it wrote stays in the layer for the next command.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.vm import cache
from tests.vm.building import KEYRING, debian_mirror
from tests.vm.progress import say_on_stderr, timed

ENVIRONMENT = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]

# $1 is the layer's folder and $2 the base.
_MOUNT = r"""
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /dev dev
shift 2
"""


class InstallError(Exception):
    """A command in the root failed; shows what it printed."""


@dataclass(frozen=True)
class Root:
    """A base with a layer over it."""

    base: Path
    layer: Path

    def run(self, *command: str) -> str:
        """What the command prints; InstallError when it does not end with 0. Offline, as image builds are."""
        return self._mounted(["--net"], f'{_MOUNT}exec chroot . "$@"', [*ENVIRONMENT, *command])

    def outside(self, folder: Path, *command: str | Path) -> str:
        """As `run`, for a command of this machine, with its network, that works on the root at `path`."""
        script = f'folder=$1; shift; {_MOUNT}cd "$folder"; exec "$@"'
        return self._mounted([], script, [*ENVIRONMENT, *map(str, command)], str(folder))

    @property
    def path(self) -> Path:
        """Where the root is, for a command outside of it; empty for everybody else."""
        return self.layer / "root"

    def _mounted(self, apart: list[str], script: str, command: list[str], *arguments: str) -> str:
        own = ["unshare", "--mount", *apart, "--pid", "--fork", "--kill-child"]
        enter = [*own, "sh", "-euc", script, "sh", *arguments, str(self.layer), str(self.base)]
        done = subprocess.run(
            [*enter, *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise InstallError(f"{command} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def shell(self, script: str) -> str:
        return self.run("sh", "-euc", script)

    def install(self, package: Path) -> str:
        """As an image build does it that has the dependencies already: dpkg fails when one is missing."""
        self.write(f"/{package.name}", package.read_bytes())
        printed = self.run("dpkg", "--install", f"/{package.name}")
        (self.layer / "upper" / package.name).unlink()
        return printed

    def write(self, path: str, content: str | bytes, mode: int = 0o644) -> None:
        target = self.layer / "upper" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        target.chmod(mode)

    def written(self) -> set[str]:
        """Files that exist now and did not in the base, or did with other content."""
        upper = self.layer / "upper"
        files = (path for path in upper.rglob("*") if path.is_symlink() or path.is_file())
        return {f"/{path.relative_to(upper)}" for path in files}


@contextmanager
def fresh_root(base: Path) -> Iterator[Root]:
    run = cache.new_run()
    try:
        for name in ("upper", "work", "root"):
            (run.path / name).mkdir()
        yield Root(base, run.path)
    finally:
        cache.discard(run)


def build_base(suite: str, package: Path, more: Sequence[str] = ()) -> Path:
    """The smallest Debian that has what the package depends on, and nothing that is only recommended.

    `more` packages make it a base of another kind, kept beside that one.
    """
    mirror, packages = debian_mirror(), ["python3", *dependencies(package), *more]
    kind = f"chroot-image-{suite}" if more else f"chroot-{suite}"

    def build(folder: Path) -> None:
        keyring = [f"--keyring={KEYRING}"] if KEYRING.exists() else []
        options = ["--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(packages)}", *keyring]
        with timed(say_on_stderr, f"building a bare {suite}{' with a kernel' if more else ''} (once)"):
            command = ["mmdebstrap", *options, suite, str(folder / "tree"), f"deb {mirror} {suite} main"]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    return cache.ensure(kind, cache.key_of(mirror, suite, *packages), build).path / "tree"


def dependencies(package: Path) -> list[str]:
    field = subprocess.run(["dpkg-deb", "-f", package, "Depends"], capture_output=True, text=True, check=True).stdout
    return sorted({re.split(r"[ :|(]", one.strip())[0] for one in field.split(",")})


REPOSITORY, SOURCE = "/srv/repository", "/etc/apt/sources.list.d/test.list"
APT_UPDATE = ("apt-get", "update", "-o", f"Dir::Etc::SourceList={SOURCE}", "-o", "Dir::Etc::SourceParts=-")


def as_repository(package: Path) -> dict[str, bytes]:
    """The files, by path, that let apt find the package where nobody can be reached, once APT_UPDATE has read them."""
    control = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    data = package.read_bytes()
    where = f"Filename: ./{package.name}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    return {
        f"{REPOSITORY}/{package.name}": data,
        f"{REPOSITORY}/Packages": f"{control}{where}".encode(),
        SOURCE: f"deb [trusted=yes] file:{REPOSITORY} ./\n".encode(),
    }
