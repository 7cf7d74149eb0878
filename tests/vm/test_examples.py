"""Does a Debian 12 that only has cloud-init become a TPU host by docs/examples/user-data.yaml, by itself?"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples import EXAMPLES

from . import image, recipe
from .agent import await_ready, devices, driver, show
from .guest import Guest
from .machine import Machine
from .progress import Say
from .recipe import BOOKWORM, Distribution

SLOW_S = 560
SERVED = "/srv/packages"
# An address of the machine's own, in the place of the bucket.
_SERVER_UNIT = f"""\
[Service]
ExecStart=/usr/bin/python3 -m http.server --bind 127.0.0.1 --directory {SERVED} 8000
"""


def adapted(package: Path) -> str:
    """The example with an address and a sum put in, as it asks for; nothing else of it is changed."""
    text = (EXAMPLES / "user-data.yaml").read_text()
    for name, value in {
        "address": f"http://127.0.0.1:8000/{package.name}",
        "sha256": hashlib.sha256(package.read_bytes()).hexdigest(),
    }.items():
        text, changed = re.subn(rf"^    {name}=.*$", f"    {name}={value}", text, flags=re.MULTILINE)
        assert changed == 1
    return text


@pytest.fixture(scope="module")
def host(distribution: Distribution, package: Path, say: Say) -> Iterator[Guest]:
    """After the reboot that the example makes."""
    if distribution != BOOKWORM:
        pytest.skip("cloud-init's two releases read the same file: tests/packaging_chroot asks both")
    files = {
        f"{SERVED}/{package.name}": package.read_bytes(),
        "/etc/systemd/system/packages.service": _SERVER_UNIT.encode(),
        "/etc/systemd/system/cloud-final.service.d/packages.conf": b"[Unit]\nWants=packages.service\n",
        recipe.NO_CONTAINERS_FILE: b"containers: {vbar: {enabled: false}}\n",
    }
    chosen = image.cloud_init_image(distribution, adapted(package), files, say)
    machine = Machine(("v6e", "v6e", "network"), google=False)
    with Guest(chosen, machine, name="cloud-init", say=say, until="hello", boot_timeout_s=SLOW_S) as booted:
        booted.wait_boot(2)
        booted.wait_booted()
        await_ready(booted)
        yield booted


def test_the_agent_is_active_and_the_chips_are_bound_as_the_drop_in_says(host: Guest) -> None:
    assert show(host, "ActiveState") == "active"
    found = devices(host)
    assert len(found) == 2
    for address, entry in found.items():
        assert driver(host, address) == "vfio-pci"
        assert (entry["state"], entry["mode"]) == ("ready", "0660")
    assert host.check("stat --format=%G /dev/vfio/[0-9]*").split() == ["tpu-users"] * 2


def test_the_last_that_was_printed_is_the_check_and_it_asked_for_the_reboot(host: Guest) -> None:
    printed = host.read("/var/log/cloud-init-output.log")
    before, files, running = printed.rsplit("VERDICT ", 2)
    assert "tpu-agent" in before
    assert "\nwrong" not in files
    assert "\nwrong        kernel: idle" in running
    assert "mend:" in running


def test_cloud_init_is_content_and_reboots_no_second_time(host: Guest) -> None:
    assert "status: done" in host.run(["cloud-init", "status", "--wait"], timeout_s=SLOW_S).stdout
    assert len(host.check(["journalctl", "--list-boots", "--quiet", "--no-pager"]).splitlines()) == 2
