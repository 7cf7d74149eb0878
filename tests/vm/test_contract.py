"""The real kernel keeps the contract that the fake kernel is made after: the same tests, run inside a guest."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from .agent import UNIT, await_ready, show, status_line
from .guest import Guest
from .test_boot import ALL_READY

CARRIED = ("tpuagent", "tests/__init__.py", "tests/fakes", "tests/contract")
# Not the project's own conftest and settings: they want what a plain guest has not.
RUN = (
    "cd /root/contract && "
    "TPUAGENT_CONTRACT=real python3 -m pytest -q -p no:cacheprovider --confcutdir tests/contract tests/contract"
)


def test_the_contract_holds_on_the_real_kernel(guest: Guest, pytestconfig: pytest.Config) -> None:
    await_ready(guest)
    guest.write("/root/contract.tar", _packed(pytestconfig.rootpath))
    guest.check("mkdir /root/contract && tar -xf /root/contract.tar -C /root/contract")
    guest.check(["systemctl", "stop", UNIT])
    # The contract is about a driver that knows no function by itself; the package's ids= has told it of all.
    guest.check("modprobe -r vfio-pci && modprobe vfio-pci ids=")
    done = guest.run(RUN, timeout_s=400)
    guest.check("modprobe -r vfio-pci && modprobe vfio-pci")
    guest.check(["systemctl", "start", UNIT])
    assert done.code == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 40, "most of the contract can be seen on a real kernel"
    assert (show(guest, "ActiveState"), status_line(guest)) == ("active", ALL_READY)


def _packed(root: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in CARRIED:
            archive.add(root / name, name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return packed.getvalue()
