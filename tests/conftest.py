"""What tests of every part share: a machine in a folder, and the code as a child process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.machine import Machine

REPOSITORY = Path(__file__).parents[1]

# No deadline for an example, nor for making it: a machine that does something else as well is no fault of the code's.
# CI judges a change, always by the same examples; people try others every time.
settings.register_profile(
    "tests",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("tests")

RunPython = Callable[..., subprocess.CompletedProcess[str]]


def start_unbind(machine: Machine, address: str) -> threading.Thread:
    """Somebody's unbind of a held function, at the moment when it waits in the kernel. Ends when it is let go."""
    waiting = threading.Thread(
        target=machine.write, args=("/sys/bus/pci/drivers/vfio-pci/unbind", address), daemon=True
    )
    waiting.start()
    end = time.monotonic() + 10
    while machine.driver(address) and time.monotonic() < end:
        time.sleep(0.001)
    return waiting


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with an IOMMU and loaded modules, and no functions yet."""
    return Machine.create(str(tmp_path / "machine"))


@pytest.fixture
def run_python() -> RunPython:
    """Run Python in a child that finds the project, and return what it said and its exit code."""

    def run(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    return run
