"""Real engines keep the contract that the simulated engine is made after: the same tests, run inside a guest."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest

from . import image
from .conftest import Boot
from .machine import Machine

CARRIED = ("tpuagent", "tests/__init__.py", "tests/fakes", "tests/contract")
# Not the project's own conftest and settings: they want what a plain guest has not.
RUN = (
    "cd /root/contract && TPUAGENT_CONTRACT_ENGINE={} python3 -m pytest -q -p no:cacheprovider "
    "--confcutdir tests/contract/engines tests/contract/engines"
)
REGISTRY = '[[registry]]\nlocation = "localhost:5010"\ninsecure = true\n'
ENGINES = {"docker.service": "/run/docker.sock", "podman.socket": "/run/podman/podman.sock"}


@pytest.mark.parametrize("unit", ENGINES)
def test_the_contract_holds_on_the_real_engine(
    boot: Boot, base_image: image.BootImage, pytestconfig: pytest.Config, unit: str
) -> None:
    guest = boot(Machine(google=False), image=base_image)
    guest.write("/root/contract.tar", _packed(pytestconfig.rootpath))
    guest.check("mkdir /root/contract && tar -xf /root/contract.tar -C /root/contract")
    guest.check("mkdir -p /etc/containers/registries.conf.d")
    guest.write("/etc/containers/registries.conf.d/contract.conf", REGISTRY)
    guest.check(["systemctl", "start", unit], timeout_s=240)
    done = guest.run(RUN.format(ENGINES[unit]), timeout_s=900)
    assert done.code == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 45, "nearly all of the contract can be seen on a real engine"


def _packed(root: Path) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in CARRIED:
            archive.add(root / name, name, filter=lambda entry: None if "__pycache__" in entry.name else entry)
    return packed.getvalue()
