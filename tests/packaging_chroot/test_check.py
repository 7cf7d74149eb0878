"""What does `tpuagent check --image` say of a real Debian that an image build has just made, looked at from outside?"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tpuagent.image import settings
from tpuagent.image.rows import NOT_CHECKED, OK, UNKNOWN, WARNING, WRONG

from .root import APT_UPDATE, Root, as_repository
from .test_settings import with_grub

pytestmark = pytest.mark.chroot

PROJECT = Path(__file__).parents[2]
# $1 is the layer's folder, $2 the base and $3 the image: the layer's root, or a folder in it.
_LOOK = r"""
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/upper,workdir=$1/work" "$1/root"
shift 3
exec "$@"
"""


def check(root: Root, *before: str) -> tuple[int, list[dict[str, str]]]:
    """Exit code and rows. `before`: a command that runs the check, as setpriv does."""
    image = root.layer / "root"
    look = ["sh", "-euc", _LOOK, "sh", str(root.layer), str(root.base), str(image)]
    own = [sys.executable, "-m", "tpuagent", "check", "--json", "--image", str(image)]
    argv = ["unshare", "--mount", *look, *before, *own]
    done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def faults(rows: list[dict[str, str]]) -> set[tuple[str, str]]:
    return {(row["what"], row["verdict"]) for row in rows if row["verdict"] not in (OK, NOT_CHECKED)}


def with_docker(root: Root) -> None:
    """As much of Docker as a look at files finds."""
    root.write("/usr/bin/docker", "", mode=0o755)


def test_an_image_with_the_package_is_right_but_for_what_the_package_does_not_bring(installed: Root) -> None:
    code, rows = check(installed)
    assert faults(rows) == {("container engine", WRONG), ("gcloud", WARNING)}
    assert code == 1
    with_docker(installed)
    code, rows = check(installed)
    assert (code, faults(rows)) == (0, {("gcloud", WARNING)})


def test_an_image_without_the_package_is_wrong_or_switched_off(root: Root) -> None:
    code, rows = check(root)
    assert code == 1
    assert ("tpu-agent.service", WRONG) in faults(rows)


def test_what_an_image_build_did_wrong_is_named(installed: Root) -> None:
    with_docker(installed)
    installed.write("/etc/security/limits.d/99-site.conf", "* - memlock 64\n")
    code, rows = check(installed)
    assert (code, faults(rows)) == (1, {("session users: memlock", WRONG), ("gcloud", WARNING)})
    (mend,) = [row["mend"] for row in rows if row["verdict"] == WRONG]
    installed.shell(mend)  # in the image, as whoever builds it would
    code, rows = check(installed)
    assert (code, faults(rows)) == (0, {("gcloud", WARNING)})


def mend(root: Root, rows: list[dict[str, str]], *begin: str) -> None:
    """Carry out, in the image, what the rows say whose names begin so."""
    for command in dict.fromkeys(row["mend"] for row in rows if row["mend"] and row["what"].startswith(begin)):
        root.shell(command)


@pytest.mark.parametrize("how", ["rm {}", "echo >{}"])
def test_what_is_switched_off_comes_back_by_the_mends(root: Root, package: Path, how: str) -> None:
    with_grub(root)
    root.install(package)
    for path, data in as_repository(package).items():
        root.write(path, data)
    root.run(*APT_UPDATE)
    before = faults(check(root)[1])
    for path in (settings.GRUB_DROP_IN, settings.LIMITS_FILE):
        root.shell(how.format(path))
    for path in (settings.MODPROBE_FILE, settings.MODULES_FILE, settings.SYSTEMD_FILE):
        mask = settings.SWITCHED_OFF_BY[path]
        root.shell(f"mkdir -p $(dirname {mask}); ln -s /dev/null {mask}")
    root.run("update-grub")
    rows = check(root)[1]
    off = faults(rows) - before
    assert {verdict for _, verdict in off} == {WARNING}
    kinds = {what.split(":")[0].split(" ")[0] for what, _ in off}
    assert kinds == {"grub.cfg", "session", "services", "module", "vfio-pci"}
    mend(root, rows, "grub.cfg", "session", "services", "module", "vfio-pci")
    assert faults(check(root)[1]) == before


@pytest.mark.parametrize(
    "line",
    ["GRUB_CMDLINE_LINUX_DEFAULT=quiet", 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT idle=halt"'],
)
def test_who_overrides_our_parameters_is_read_before_ours_after_the_mend(root: Root, package: Path, line: str) -> None:
    with_grub(root)
    root.install(package)
    before = faults(check(root)[1])
    root.write("/etc/default/grub.d/zzz-site.cfg", f"{line}\n")
    root.run("update-grub")
    rows = check(root)[1]
    wrong = [row for row in rows if row["what"].startswith("grub.cfg") and row["verdict"] == WRONG]
    assert wrong
    assert all(row["found"].endswith("overridden by /etc/default/grub.d/zzz-site.cfg") for row in wrong)
    mend(root, rows, "grub.cfg")
    assert faults(check(root)[1]) == before


def test_what_may_not_be_read_is_unknown_and_ends_with_2(installed: Root) -> None:
    with_docker(installed)
    installed.write("/boot/grub/grub.cfg", "menuentry x {\nlinux /v quiet\n}\n", mode=0o600)
    installed.run("chown", "daemon", "/boot/grub/grub.cfg")
    # Root's own files it reads, and no others: a user could not read this interpreter wherever it is.
    code, rows = check(installed, "setpriv", "--bounding-set=-dac_override,-dac_read_search")
    assert (code, faults(rows)) == (2, {("grub.cfg", UNKNOWN), ("gcloud", WARNING)})
