"""What is left of a pass whose process is killed in the middle, and does the next one make it good?"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.kernel import eventually
from tests.devices import passes
from tests.fakes.machine import Machine

REPOSITORY = Path(__file__).parents[2]
WRITES = ["override", "unbind", "bind"]


def _path(function: str, write: str) -> str:
    paths = {
        "override": passes.override_path(function),
        "unbind": passes.unbind_path("old"),
        "bind": passes.bind_path("vfio-pci"),
    }
    return paths[write]


@pytest.mark.parametrize("write", WRITES)
def test_after_a_kill_at_any_write_the_next_pass_makes_it_good_and_knows_the_old_driver(
    machine: Machine, write: str
) -> None:
    functions = [machine.add_function("v6e", driver="old") for _ in range(2)]
    gate = machine.stop_at(_path(functions[1], write), text="vfio-pci" if write == "override" else functions[1])
    command = [sys.executable, "-m", "tests.fakes", machine.root, "bind", "--all"]
    with subprocess.Popen(command, cwd=REPOSITORY) as child:
        gate.wait_reached()
        child.kill()
        assert child.wait() == -signal.SIGKILL
        gate.open()  # the write that was under way is carried out, as the kernel would
    expected = {"override": "old", "unbind": None, "bind": "vfio-pci"}[write]
    assert eventually(lambda: machine.driver(functions[1]) == expected)
    assert passes.all_ready(passes.keep(machine))
    assert passes.all_ready(passes.keep(machine))
    passes.unbind(machine)
    assert [machine.driver(function) for function in functions] == ["old", "old"]
