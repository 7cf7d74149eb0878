"""Does an upgrade that nobody attends come to its end, and leave the files in /etc as somebody has made them?

These are files that an upgrade would ask about if dpkg kept them. Closed standard input: nobody can answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm import packages
from tpuagent.image import settings

from .root import Root

pytestmark = pytest.mark.chroot

COPIES = tuple(settings.COPIED_FROM)
GRUB, LIMITS = settings.GRUB_DROP_IN, settings.LIMITS_FILE
OWN = "# the administrator's\n"
Deed = Callable[[Root], object]


def upgrade(root: Root, package: Path) -> str:
    """As a script does it, once with the variable that it should set and once without."""
    root.write(f"/{package.name}", package.read_bytes())
    install = f"apt-get install --yes --allow-downgrades -o Dpkg::Use-Pty=0 /{package.name} <&-"
    try:
        return root.shell(install) + root.shell(f"unset DEBIAN_FRONTEND; {install.replace('install', 'reinstall')}")
    finally:
        root.run("rm", f"/{package.name}")


def delete(*paths: str) -> Deed:
    return lambda root: root.run("rm", *paths)


def change(*paths: str) -> Deed:
    def deed(root: Root) -> None:
        for path in paths:
            root.write(path, OWN)

    return deed


def mask(*paths: str) -> Deed:
    return lambda root: [root.run("ln", "-sf", "/dev/null", path) for path in paths]


def found(root: Root) -> dict[str, str]:
    """What a file says; "gone", or "-> and where it leads"."""
    look = 'if [ -L "$1" ]; then echo "-> $(readlink "$1")"; else cat "$1" 2>/dev/null || echo gone; fi'
    return {path: root.run("sh", "-c", look, "sh", path) for path in COPIES}


def said(printed: str) -> set[str]:
    """Which files the package says that it has left."""
    return set(re.findall(r"^tpu-agent: (\S+) stays as it is", printed, re.MULTILINE))


@pytest.mark.parametrize(
    ("deed", "left"),
    [
        (delete(*COPIES), set()),
        (change(*COPIES), set(COPIES)),
        (lambda root: (delete(GRUB)(root), change(LIMITS)(root)), {LIMITS}),
        (lambda root: (delete(LIMITS)(root), change(GRUB)(root)), {GRUB}),
        (mask(*COPIES), set(COPIES)),
    ],
    ids=["deleted", "changed", "grub-deleted", "limits-deleted", "linked-to-null"],
)
def test_what_somebody_has_changed_or_deleted_stays_so(
    installed: Root, later_package: Path, package: Path, deed: Deed, left: set[str]
) -> None:
    deed(installed)
    before = found(installed)
    assert said(upgrade(installed, later_package)) == left
    assert found(installed) == before
    upgrade(installed, package)
    assert found(installed) == before, "nor by a downgrade"
    assert installed.run("dpkg", "--audit") == ""


def test_what_nobody_has_touched_is_this_version_s(installed: Root, later_package: Path, package: Path) -> None:
    before = found(installed)
    assert said(upgrade(installed, later_package)) == set()
    changed = found(installed)
    for path, source in settings.COPIED_FROM.items():
        assert changed[path] == before[path] + packages.CHANGED[source]
        assert installed.run("stat", "--format=%a %U:%G", path) == "644 root:root\n"
    upgrade(installed, package)
    assert found(installed) == before


def test_what_is_left_is_said_once_for_a_version_and_not_where_it_says_the_same(
    installed: Root, later_package: Path, package: Path
) -> None:
    change(*COPIES)(installed)
    assert said(installed.install(package)) == set(), "it is still the version that it was changed from"
    assert said(installed.install(later_package)) == set(COPIES)
    assert said(installed.install(later_package)) == set()


def test_a_file_that_an_image_build_put_there_first_stays(root: Root, package: Path, later_package: Path) -> None:
    change(*COPIES)(root)
    assert said(root.install(package)) == set(COPIES)
    upgrade(root, later_package)
    assert set(found(root).values()) == {OWN}


def test_who_puts_our_text_back_follows_the_versions_again(installed: Root, later_package: Path) -> None:
    change(*COPIES)(installed)
    for path, source in settings.COPIED_FROM.items():
        installed.run("cp", source, path)
    assert said(upgrade(installed, later_package)) == set()
    assert set(found(installed).values()) == {installed.run("cat", source) for source in settings.COPIED_FROM.values()}


def test_a_deleted_file_comes_back_with_a_new_installation_and_not_while_the_configuration_is_kept(
    installed: Root, package: Path
) -> None:
    delete(*COPIES)(installed)
    installed.run("dpkg", "--remove", "tpu-agent")
    installed.install(package)
    assert set(found(installed).values()) == {"gone\n"}
    installed.run("dpkg", "--purge", "tpu-agent")
    installed.install(package)
    assert "gone\n" not in found(installed).values()


def test_an_installation_that_was_interrupted_before_it_remembered_is_repeated(
    installed: Root, later_package: Path
) -> None:
    installed.write(f"/{later_package.name}", later_package.read_bytes())
    installed.run("dpkg", "--unpack", f"/{later_package.name}")
    installed.shell(f"cp {settings.COPIED_FROM[LIMITS]} {LIMITS}")
    installed.run("dpkg", "--configure", "tpu-agent")
    assert found(installed)[LIMITS] == installed.run("cat", settings.COPIED_FROM[LIMITS])
    assert found(installed)[GRUB] == installed.run("cat", settings.COPIED_FROM[GRUB])
