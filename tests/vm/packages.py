"""Between which versions of the package does a test go? The built one, and that repacked under another number."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tpuagent.image import settings

LATER, EARLIER = "99.0", "0.0.1"
# What a later version may say otherwise: comments, which change nothing else.
CHANGED = {
    "/usr/share/tpu-agent/config.yaml": "\n# A key that is new in this version.\n",
    **dict.fromkeys(settings.COPIED_FROM.values(), "\n# This version's words.\n"),
}


def repacked(package: Path, folder: Path, version: str, appended: Mapping[str, str]) -> Path:
    """The package with another version number, and text at the end of some of its files: a whole and valid one."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    for path, text in appended.items():
        with (tree / path.lstrip("/")).open("a") as file:
            file.write(text)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.MULTILINE))
    sums = tree / "DEBIAN/md5sums"
    names = [line.split(maxsplit=1)[1] for line in sums.read_text().splitlines()]
    digests = [hashlib.md5((tree / name).read_bytes(), usedforsecurity=False).hexdigest() for name in names]
    sums.write_text("".join(f"{digest}  {name}\n" for digest, name in zip(digests, names, strict=True)))
    built = folder / f"tpu-agent_{version}_all.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", tree, built], check=True, stdout=subprocess.DEVNULL)
    return built


def later(package: Path, folder: Path) -> Path:
    """A later version, which says other things in every file that somebody may have changed."""
    return repacked(package, folder, LATER, CHANGED)


def earlier(package: Path, folder: Path) -> Path:
    """An earlier version with the same files."""
    return repacked(package, folder, EARLIER, {})
