"""Is systemd told what it must be told, by the main process alone?"""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator

import pytest

from tests.conftest import RunPython

_SAY_ALL = """
import os, subprocess, sys
from tpuagent.systemd import ServiceManager
manager = ServiceManager()
manager.status("8 of 8\\nv5p  functions ready")
manager.ready()
manager.alive()
manager.stopping()
handed_on = subprocess.run(["env"], stdout=subprocess.PIPE, text=True, check=True).stdout
print(*(line for line in handed_on.splitlines() if line.startswith(("NOTIFY_", "WATCHDOG_"))))
"""


@pytest.fixture
def notified() -> Iterator[socket.socket]:
    """A notification socket as systemd has it."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"{folder}/notify")  # not in pytest's folder: the path of a socket is short
        ours.setblocking(False)
        yield ours


def received(ours: socket.socket) -> list[str]:
    messages = []
    try:
        while True:
            messages.append(ours.recv(4096).decode())
    except BlockingIOError:
        return messages


ALL = ["STATUS=8 of 8 v5p functions ready", "READY=1", "WATCHDOG=1", "STOPPING=1"]


def test_each_message_is_one_datagram_and_the_status_one_line(notified: socket.socket, run_python: RunPython) -> None:
    done = run_python("-c", _SAY_ALL, environment={"NOTIFY_SOCKET": notified.getsockname(), "WATCHDOG_USEC": "1500000"})
    assert (done.returncode, done.stderr) == (0, "")
    assert received(notified) == ALL


def test_no_child_inherits_what_makes_a_process_notify(notified: socket.socket, run_python: RunPython) -> None:
    environment = {"NOTIFY_SOCKET": notified.getsockname(), "WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}
    assert run_python("-c", _SAY_ALL, environment=environment).stdout == "\n"


def test_an_abstract_socket_is_understood(run_python: RunPython) -> None:
    name = f"tpu-agent-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"\0{name}")
        ours.setblocking(False)
        assert run_python("-c", _SAY_ALL, environment={"NOTIFY_SOCKET": f"@{name}"}).returncode == 0
        assert received(ours) == ALL


@pytest.mark.parametrize("address", ["", "/nowhere/notify"])
def test_without_a_listener_nothing_is_told_and_nothing_fails(run_python: RunPython, address: str) -> None:
    done = run_python("-c", _SAY_ALL, environment={"NOTIFY_SOCKET": address})
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


def test_a_listener_that_has_gone_is_no_fault(run_python: RunPython) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
            ours.bind(f"{folder}/notify")
        done = run_python("-c", _SAY_ALL, environment={"NOTIFY_SOCKET": f"{folder}/notify"})
    assert (done.returncode, done.stderr) == (0, "")


def test_the_limit_of_the_watchdog_may_be_a_fraction_and_may_be_another_processes(run_python: RunPython) -> None:
    cases: list[tuple[dict[str, str], float | None]] = [
        ({}, None),
        ({"WATCHDOG_USEC": ""}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "1500000"}, 1.5),
        ({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": ""}, 60.0),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "self"}, 1.5),
        ({"WATCHDOG_USEC": "1500000", "WATCHDOG_PID": "1"}, None),
    ]
    script = """
import json, os, sys
from tpuagent.systemd import ServiceManager
for variables in json.loads(sys.argv[1]):
    os.environ.update({name: str(os.getpid()) if value == "self" else value for name, value in variables.items()})
    print(json.dumps(ServiceManager().watchdog_s))
"""
    said = run_python("-c", script, json.dumps([variables for variables, _ in cases]))
    assert [json.loads(line) for line in said.stdout.splitlines()] == [limit_s for _, limit_s in cases]
