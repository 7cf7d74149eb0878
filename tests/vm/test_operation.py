"""On a running host: what do operators, workloads and accidents meet?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .agent import (
    DRIVERS,
    PCI,
    UNIT,
    Journal,
    await_ready,
    await_status,
    devices,
    driver,
    give_to,
    group_node,
    show,
    status_line,
)
from .channel import Running
from .guest import Guest
from .test_boot import ALL_READY

HOLDER = Path(__file__).parents[1] / "contract/holder.py"
# Messages to those who listen to udev. They are none of udev's, so the filter lets them pass and the reader drops them.
FLOOD = """
import socket
sender = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
for count in range(4000):
    sender.sendto(bytes(8000), (0, 2))
"""
AT_ONCE_S = 20  # on an emulated processor; the kernel would let the caller wait for ever


@pytest.fixture(autouse=True)
def _agent_is_up(guest: Guest) -> None:
    await_ready(guest)


@contextmanager
def workload(guest: Guest, address: str) -> Iterator[Running]:
    """A process that has a function open through VFIO, as a TPU program has."""
    guest.put(HOLDER, "/root/holder.py")
    running = guest.start(["python3", "/root/holder.py", group_node(guest, address), address, "device"])
    running.wait_for("held")
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def test_a_function_that_another_driver_has_is_taken_over_and_can_be_given_back(guest: Guest) -> None:
    address = guest.address(0)
    guest.check("modprobe pci-stub")
    journal = Journal(guest)
    pid = show(guest, "MainPID")
    guest.check(["kill", "-STOP", pid])  # or it would take the function back before the other driver can have it
    give_to(guest, address, "pci-stub")
    assert driver(guest, address) == "pci-stub"
    guest.check(["kill", "-CONT", pid])
    journal.wait_for(f"function_ready address={address}")
    assert driver(guest, address) == "vfio-pci"
    assert guest.check(["tpuagent", "unbind", address]).strip().endswith("its driver is pci-stub")
    assert driver(guest, address) == "pci-stub"
    journal.wait_for(f"function_released address={address}")
    assert "1 released" not in status_line(guest)
    assert f"{address} released" in await_status(guest, f"{address} released")
    guest.check(["systemctl", "restart", UNIT])
    assert driver(guest, address) == "pci-stub", "released means released, also for the next agent"
    guest.check(["tpuagent", "bind", address])
    assert driver(guest, address) == "vfio-pci"


def test_the_function_that_had_another_driver_when_the_agent_started_is_bound(guest: Guest) -> None:
    address = guest.address(1)
    guest.check("modprobe pci-stub")
    guest.check(["systemctl", "stop", UNIT])
    give_to(guest, address, "pci-stub")
    guest.check(["systemctl", "start", UNIT])
    assert driver(guest, address) == "vfio-pci"
    assert await_status(guest, ALL_READY) == ALL_READY


def test_a_rebind_by_hand_is_repaired(guest: Guest) -> None:
    address = guest.address(2)
    node = group_node(guest, address)
    inode = guest.check(["stat", "--format=%i", node])
    journal = Journal(guest)
    guest.check(f"cd {DRIVERS}/vfio-pci; printf {address} >unbind; printf {address} >bind || true")
    journal.wait_for(f"function_ready address={address}")
    assert guest.check(["stat", "--format=%a %i", node]).split() != ["666", inode.strip()]
    assert guest.check(["stat", "--format=%a", node]) == "666\n"


def test_a_mode_changed_by_hand_is_found_by_the_next_look(guest: Guest) -> None:
    node = group_node(guest, guest.address(3))
    guest.check(["chmod", "0600", node])
    journal = Journal(guest)
    guest.check(["systemctl", "reload", UNIT])
    journal.wait_for(f"function_ready address={guest.address(3)}")
    assert guest.check(["stat", "--format=%a", node]) == "666\n"


def test_a_held_function_is_refused_at_once_and_its_holder_named(guest: Guest) -> None:
    address = guest.address(4)
    with workload(guest, address):
        refused = guest.run(["tpuagent", "unbind", address], timeout_s=AT_ONCE_S)
        assert refused.code == 12
        assert "holder.py" in refused.stderr
        (holder,) = devices(guest)[address]["holders"]
        assert f"process {holder['pid']} " in refused.stderr
        assert driver(guest, address) == "vfio-pci"
        assert await_status(guest, ALL_READY) == ALL_READY
    guest.check(["tpuagent", "unbind", address])
    guest.check(["tpuagent", "bind", address])


def test_while_an_unbind_waits_in_the_kernel_everything_still_answers(guest: Guest) -> None:
    address = guest.address(5)
    with workload(guest, address) as holder:
        waiting = guest.start(f"printf {address} > {DRIVERS}/vfio-pci/unbind")
        guest.check(f"while [ -e {PCI}/{address}/driver ]; do :; done", timeout_s=AT_ONCE_S)
        guest.check(
            ["systemctl", "reload", UNIT]
        )  # the kernel tells nobody that the wait has begun; or within a minute
        # Not by the journal: on Linux 6.1 the journal itself waits for the function.
        guest.check("until tpuagent status | grep 'release pending'; do sleep 0.1; done", timeout_s=AT_ONCE_S)
        assert "release pending" in await_status(guest, "release pending")
        assert "release pending" in guest.run(["tpuagent", "status"], timeout_s=AT_ONCE_S).stdout
        seen = json.loads(guest.run(["tpuagent", "devices", "--json"], timeout_s=AT_ONCE_S).stdout)
        (entry,) = (entry for entry in seen if entry["address"] == address)
        assert entry["state"] == "stuck"
        assert "holder.py" in entry["holders"][0]["command"]
        for verb in ("bind", "unbind"):
            refused = guest.run(["tpuagent", verb, address], timeout_s=AT_ONCE_S)
            assert refused.code == 17
            assert "release pending" in refused.stderr
        assert guest.run(["tpuagent", "bind", "--all"], timeout_s=AT_ONCE_S).code == 18
        guest.check(["systemctl", "restart", UNIT], timeout_s=AT_ONCE_S)
        assert "release pending" in await_status(guest, "release pending")
        holder.kill()
        waiting.wait()
    guest.check(["tpuagent", "bind", address])
    assert driver(guest, address) == "vfio-pci"
    assert await_status(guest, ALL_READY) == ALL_READY


def test_events_lost_in_a_flood_do_not_deafen_the_agent(guest: Guest) -> None:
    address = guest.address(6)
    journal = Journal(guest)
    pid = show(guest, "MainPID")
    guest.check(["kill", "-STOP", pid])
    # Each event is some hundred bytes in a buffer of several megabytes.
    guest.check(["python3", "-c", FLOOD], timeout_s=180)
    guest.check(["kill", "-CONT", pid])
    journal.wait_for("events_lost")
    guest.check(f"cd {DRIVERS}/vfio-pci; printf {address} >unbind; printf {address} >bind || true")
    journal.wait_for(f"function_ready address={address}")
    assert show(guest, "MainPID") == pid


def test_a_killed_agent_comes_back_and_finishes(guest: Guest) -> None:
    for _ in range(3):
        guest.check(["tpuagent", "unbind", "--all"])
        guest.check(["systemctl", "stop", UNIT])
        guest.check(["rm", "/run/tpu-agent/devices.json"])
        guest.check(["systemctl", "start", "--no-block", UNIT])
        # The fourth new group of eight is the middle of the first pass.
        guest.check(["udevadm", "wait", "--timeout=60", group_node(guest, guest.address(3))])
        journal = Journal(guest)
        guest.check(["systemctl", "kill", "--signal=KILL", UNIT])
        journal.wait_for("Scheduled restart job")
        guest.check(["systemctl", "start", UNIT])  # joins the start that is under way
        assert await_status(guest, ALL_READY) == ALL_READY


def test_the_command_and_the_daemon_take_turns(guest: Guest) -> None:
    addresses = [guest.address(number) for number in range(4)]
    running = []
    for address in addresses:
        running.append(
            guest.start(f"for i in 1 2 3; do tpuagent unbind {address} && tpuagent bind {address} || exit; done")
        )
        running.append(guest.start(["systemctl", "reload", UNIT]))
    for command in running:
        result = command.wait(180)
        assert result.code == 0, result.stderr
    assert await_status(guest, ALL_READY) == ALL_READY


def test_a_configuration_with_a_mistake_ends_the_unit_once_with_one_line(guest: Guest) -> None:
    drop_in = "/etc/tpu-agent/config.d/90-test.yaml"
    journal = Journal(guest)
    guest.write(drop_in, "devices:\n  mode: 666\n")
    guest.run(["systemctl", "reload", UNIT])
    journal.wait_for("trouble_began")
    assert f"{drop_in}: line 2: devices.mode" in await_status(guest, f"{drop_in}: line 2: devices.mode")
    assert guest.run(["systemctl", "restart", UNIT]).code != 0
    assert (show(guest, "ExecMainStatus"), show(guest, "NRestarts")) == ("78", "0")
    assert show(guest, "ActiveState") == "failed"
    guest.check(["rm", drop_in])
    guest.check(["systemctl", "start", UNIT])
    assert await_status(guest, ALL_READY) == ALL_READY


def test_a_group_of_users_can_have_the_nodes_to_itself(guest: Guest) -> None:
    drop_in = "/etc/tpu-agent/config.d/90-test.yaml"
    node = group_node(guest, guest.address(0))
    guest.check(["groupadd", "--force", "tpu-users"])
    guest.write(drop_in, 'devices:\n  group: tpu-users\n  mode: "0660"\n')
    journal = Journal(guest)
    guest.check(["systemctl", "reload", UNIT])
    journal.wait_for(f"function_ready address={guest.address(7)}")
    assert guest.check(["stat", "--format=%a %G", node]) == "660 tpu-users\n"
    guest.check(["rm", drop_in])
    journal = Journal(guest)
    guest.check(["systemctl", "reload", UNIT])
    journal.wait_for(f"function_ready address={guest.address(7)}")
    assert guest.check(["stat", "--format=%a %G", node]) == "666 root\n"


def test_stopping_the_agent_leaves_the_functions_bound(guest: Guest) -> None:
    guest.check(["systemctl", "stop", UNIT], timeout_s=AT_ONCE_S)
    assert guest.run(["tpuagent", "status"]).code == 3
    assert {driver(guest, address) for address in devices(guest)} == {"vfio-pci"}
    assert guest.run(["tpuagent", "bind", "--all"]).code == 0
    guest.check(["systemctl", "start", UNIT])


def test_a_frozen_agent_is_replaced_by_the_watchdog(guest: Guest) -> None:
    guest.check("mkdir -p /run/systemd/system/tpu-agent.service.d")
    guest.write("/run/systemd/system/tpu-agent.service.d/watchdog.conf", "[Service]\nWatchdogSec=5\n")
    guest.check(["systemctl", "daemon-reload"])
    guest.check(["systemctl", "restart", UNIT])
    journal = Journal(guest)
    guest.check(["kill", "-STOP", show(guest, "MainPID")])
    journal.wait_for("agent_ready", timeout_s=90)
    guest.check("rm -r /run/systemd/system/tpu-agent.service.d; systemctl daemon-reload")
    guest.check(["systemctl", "restart", UNIT])
    assert await_status(guest, ALL_READY) == ALL_READY
