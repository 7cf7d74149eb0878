"""What do Debian's own tools for testing packages say: autopkgtest with the package's tests, and piuparts?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .conftest import PROJECT
from .root import Root

pytestmark = pytest.mark.chroot

# What debconf makes in Debian 13 when apt has it look into packages, and the piuparts of Debian 12 does not know of.
NOT_OURS = "^/var/cache/debconf/tmp\\.ci/?$"


@pytest.fixture(autouse=True)
def _tools() -> None:
    missing = [tool for tool in ("autopkgtest", "piuparts") if not shutil.which(tool, path="/usr/bin:/usr/sbin")]
    if missing:
        pytest.fail(f"apt-get install {' '.join(missing)}")


def test_piuparts_finds_nothing(root: Root, package: Path) -> None:
    """Install, remove, install, purge, and compare every file with the beginning. It works on a copy of the base."""
    options = ["--defaults=debian", f"--distribution={root.base.parent.name.split('-')[1]}", "--keep-sources-list"]
    options += [f"--existing-chroot={root.base}", f"--tmpdir={root.layer}", f"--ignore-regex={NOT_OURS}"]
    said = root.outside(PROJECT, "piuparts", *options, "--no-eatmydata", "--install-remove-install", package)
    assert "PASS: All tests" in said


def test_the_tests_that_come_with_the_package_pass_on_it_as_it_is_installed(
    root: Root, package: Path, tmp_path: Path
) -> None:
    for name in ("tests", "packaging"):
        shutil.copytree(PROJECT / name, tmp_path / name)
    shutil.copy(PROJECT / "pyproject.toml", tmp_path)
    (tmp_path / "debian").symlink_to("packaging/debian")
    root.write("/etc/resolv.conf", Path("/etc/resolv.conf").read_bytes())
    summary = root.layer / "summary"
    update = ["--setup-commands", "apt-get update -qq"]
    options: list[str | Path] = [*update, f"--summary-file={summary}", "--no-built-binaries", package]
    # The second slash: a tree whose binaries are built, so that nothing is needed to unpack it.
    skipped_is_fine = ["sh", "-c", 'autopkgtest "$@" || [ $? = 2 ]', "autopkgtest"]
    root.outside(PROJECT, *skipped_is_fine, *options, f"{tmp_path}//", "--", "chroot", root.path)
    results = dict(line.split(maxsplit=2)[:2] for line in summary.read_text().splitlines())
    # The last needs a system that runs: vm/test_package.py runs it.
    assert results == {"smoke": "PASS", "image": "PASS", "unit": "PASS", "service": "SKIP"}
