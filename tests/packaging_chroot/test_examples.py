"""Do the examples of docs/examples work where an image is built? In chroots; the recipe makes one, from the network."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.examples import EXAMPLES, provisioners
from tests.vm import cache
from tests.vm.building import APART, KEYRING, debian_mirror

from .root import InstallError, Root

pytestmark = pytest.mark.chroot

RECIPE = EXAMPLES / "image.sh"
# Runs the recipe, and says what it has left mounted; both in a place of its own.
_RUN = 'code=0; "$@" </dev/null || code=$?; echo "mounted: $(grep -c "$ROOT" /proc/self/mounts)"; exit "$code"'


def test_cloud_init_takes_the_user_data(image: Root) -> None:
    image.write("/user-data", (EXAMPLES / "user-data.yaml").read_bytes())
    assert "Valid" in image.run("cloud-init", "schema", "--config-file", "/user-data")


def test_cloud_init_would_say_what_it_does_not_take(image: Root) -> None:
    spoiled = {**yaml.safe_load((EXAMPLES / "user-data.yaml").read_text()), "runcmd": "true"}
    image.write("/user-data", f"#cloud-config\n{yaml.safe_dump(spoiled)}")
    with pytest.raises(InstallError, match="runcmd"):
        image.run("cloud-init", "schema", "--config-file", "/user-data")


def copied_to() -> str:
    """Where the template wants the package in the machine."""
    path: str = dict(provisioners())["file"]["destination"]
    return path


def run_provisioners(image: Root) -> str:
    """What the template does to the machine, in its order; what it printed."""
    printed = ""
    for kind, body in provisioners():
        if kind == "shell":
            printed += image.shell("\n".join(body["inline"]))
    return printed


def test_the_steps_of_the_packer_template_make_a_good_image(image: Root, package: Path) -> None:
    image.write(copied_to(), package.read_bytes())
    printed = run_provisioners(image)
    assert "wrong" not in printed.rpartition("VERDICT")[2]
    image.shell(f"test ! -e /usr/sbin/policy-rc.d; test ! -e {copied_to()}; test ! -s /etc/machine-id")


def test_a_wrong_image_fails_the_packer_build(image: Root, package: Path) -> None:
    image.write(copied_to(), package.read_bytes())
    image.write("/etc/modprobe.d/hard.conf", "install vfio-pci /bin/false\n")
    with pytest.raises(InstallError, match=r"(?s)ended with 1.*hard\.conf:1"):
        run_provisioners(image)


def run_recipe(root: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*APART, "sh", "-c", _RUN, "sh", RECIPE, *arguments],
        env={**os.environ, "ROOT": str(root)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    run = cache.new_run()
    yield run.path
    shutil.rmtree(run.path / "image")  # while it is held: it takes a while
    cache.discard(run)


# One release: it takes minutes, and nothing in it knows one from the other.
def test_the_recipe_makes_an_image_that_the_check_calls_good(folder: Path, package: Path) -> None:
    suite = "bookworm"
    root = folder / "image"
    line = f"deb {f'[signed-by={KEYRING}] ' if KEYRING.exists() else ''}{debian_mirror()} {suite} main"
    done = run_recipe(root, "--suite", suite, "--mirror", line, root, package)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.endswith("mounted: 0\n")
    verdicts = done.stdout.rpartition("VERDICT")[2]
    assert "ok           tpu-agent.service" in verdicts
    assert "ok           module vfio-pci" in verdicts
    assert "ok           container engine" in verdicts
    assert (root / "etc/machine-id").read_bytes() == b""
    gone = ("etc/resolv.conf", "etc/hostname", "usr/sbin/policy-rc.d", "tmp/tpu-agent.deb", "var/lib/dbus/machine-id")
    assert [path for path in gone if (root / path).exists()] == []
    assert list((root / "var/lib/apt/lists").iterdir()) == []
    assert list((root / "var/cache/apt/archives").glob("*.deb")) == []
    assert list((root / "etc/ssh").glob("ssh_host_*")) == []

    # The same folder again, as an image of somebody's; in it something is wrong.
    (root / "etc/modprobe.d/hard.conf").write_text("install vfio-pci /bin/false\n")
    (root / "etc/ssh").mkdir(exist_ok=True)
    (root / "etc/ssh/ssh_host_rsa_key").write_text("")
    again = run_recipe(root, root, package)
    assert again.returncode == 1, again.stdout[-3000:] + again.stderr[-3000:]
    assert "modprobe is told not to (/etc/modprobe.d/hard.conf:1)" in again.stdout
    assert again.stdout.endswith("mounted: 0\n")
    assert list((root / "etc/ssh").glob("ssh_host_*")) == []

    # A package that is none.
    (folder / "no.deb").write_text("")
    failed = run_recipe(root, root, folder / "no.deb")
    assert failed.returncode == 3
    assert "image.sh: cannot install" in failed.stderr
    assert failed.stdout.endswith("mounted: 0\n")
    assert not (root / "tmp/tpu-agent.deb").exists()
