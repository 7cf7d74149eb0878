"""From the first installation to the purge, by every way between versions: is the package whole after each step?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vm import packages
from tpuagent.image import settings

from .root import Root
from .test_chroot import CONFIG, ENABLED, kept

pytestmark = pytest.mark.chroot

IMAGES = "/var/lib/tpu-agent/images"
# What a package could leave that no list of files names.
REGISTERED = """
cat /etc/passwd /etc/group
dpkg-statoverride --list || true  # 1: there is none
dpkg-divert --list
"""


def version(root: Root) -> str:
    """What dpkg says: the state and the version."""
    return root.run("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}${Version}", "tpu-agent")


def assert_whole(root: Root, expected: str) -> None:
    """The package is there in this version: every file has its sum, none is missing, and dpkg has nothing to add."""
    assert version(root) == f"ii {expected}"
    assert root.run("dpkg", "--audit") == ""
    assert root.run("dpkg", "--verify", "tpu-agent") == ""
    assert root.run("tpuagent", "--help")
    root.run("test", "-L", ENABLED)
    for path, source in settings.COPIED_FROM.items():
        root.run("cmp", path, source)


def test_every_way_between_versions_leaves_it_whole_and_purge_leaves_nothing(
    root: Root, package: Path, later_package: Path, earlier_package: Path
) -> None:
    before = root.shell(REGISTERED)
    built = package.name.split("_")[1]
    for step, expected in [
        (package, built),
        (package, built),
        (later_package, packages.LATER),
        (package, built),
        (earlier_package, packages.EARLIER),
        (package, built),
    ]:
        root.install(step)
        assert_whole(root, expected)
    root.run("dpkg", "--remove", "tpu-agent")
    assert version(root) == f"rc {built}"
    root.install(later_package)
    assert_whole(root, packages.LATER)
    root.run("dpkg", "--purge", "tpu-agent")
    assert kept(root) == set()
    assert root.shell(REGISTERED) == before
    root.shell("test ! -e /var/lib/tpu-agent; test ! -e /etc/default/grub.d; test -d /etc/security/limits.d")
    root.install(package)
    assert_whole(root, built)


def test_dpkg_sees_a_file_of_the_package_that_was_changed(installed: Root) -> None:
    """What the sums are for, and that this test could fail."""
    installed.shell("echo '# changed' >>/usr/share/tpu-agent/config.yaml")
    assert "/usr/share/tpu-agent/config.yaml" in installed.run("sh", "-c", "dpkg --verify tpu-agent || true")


def test_a_unit_that_was_disabled_stays_disabled_over_upgrade_and_downgrade(
    installed: Root, package: Path, later_package: Path
) -> None:
    installed.run("rm", ENABLED)  # as systemctl does it, which a bare Debian 12 has not
    for step in (later_package, package):
        installed.install(step)
        installed.run("test", "!", "-e", ENABLED)


def test_archives_of_images_outlive_a_purge_and_the_line_says_so(installed: Root, package: Path) -> None:
    installed.run("mkdir", IMAGES)
    installed.write(f"{IMAGES}/vbar.tar", "somebody's")
    assert f"tpu-agent: {IMAGES} stays" in installed.run("dpkg", "--purge", "tpu-agent")
    assert kept(installed) == {f"{IMAGES}/vbar.tar"}
    installed.install(package)
    assert installed.run("cat", f"{IMAGES}/vbar.tar") == "somebody's"


def test_an_empty_folder_for_archives_goes_with_the_package(installed: Root) -> None:
    installed.run("mkdir", IMAGES)
    assert "stays" not in installed.run("dpkg", "--purge", "tpu-agent")
    installed.shell("test ! -e /var/lib/tpu-agent")


def test_a_folder_for_grub_that_somebody_else_uses_stays(root: Root, package: Path) -> None:
    root.run("mkdir", "-p", "/etc/default/grub.d")
    root.write("/etc/default/grub.d/50-site.cfg", "# somebody's\n")
    root.install(package)
    root.run("dpkg", "--purge", "tpu-agent")
    assert kept(root) == {"/etc/default/grub.d/50-site.cfg"}


def test_a_deleted_configuration_comes_with_no_upgrade(installed: Root, later_package: Path) -> None:
    installed.run("rm", CONFIG)
    installed.run("dpkg", "--remove", "tpu-agent")
    installed.install(later_package)
    installed.run("test", "!", "-e", CONFIG)
