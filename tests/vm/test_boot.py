"""After an image build and a power-on, with nobody logged in: is the host what the package promises?"""

from __future__ import annotations

import json

import pytest

from .agent import UNIT, Journal, await_ready, await_status, devices, driver, group_node, show, status_line
from .conftest import SHARED, Boot
from .guest import Guest
from .machine import Machine
from .recipe import BOOKWORM, USER, Distribution

ALL_READY = "4 of 4 v5p, 2 of 2 v6e, 2 of 2 tpu7x (1 chip) functions ready"
TPUS = [number for number, kind in enumerate(SHARED.functions) if kind != "network"]
OPEN_ALL = "import os, sys\nfor path in sys.argv[1:]: os.close(os.open(path, os.O_RDWR))"


@pytest.fixture(autouse=True)
def _agent_is_up(guest: Guest) -> None:
    await_ready(guest)


def test_every_chip_is_bound_and_opened_by_an_unprivileged_user(guest: Guest) -> None:
    addresses = [guest.address(number) for number in TPUS]
    assert [driver(guest, address) for address in addresses] == ["vfio-pci"] * 8
    nodes = [group_node(guest, address) for address in addresses]
    guest.check(["python3", "-c", OPEN_ALL, "/dev/vfio/vfio", *nodes], user=USER)
    assert {entry["mode"] for entry in devices(guest).values()} == {"0666"}


def test_the_network_function_of_the_same_vendor_is_not_touched(guest: Guest) -> None:
    (address,) = guest.addresses("network")
    assert driver(guest, address) == ""
    assert guest.read(f"/sys/bus/pci/devices/{address}/driver_override").strip() in ("(null)", "")
    assert address not in devices(guest)
    refused = guest.run(["tpuagent", "bind", address])
    assert refused.code == 11
    assert "1ae0:0042" in refused.stderr


def test_the_unit_is_active_and_its_status_line_tells_the_truth(guest: Guest) -> None:
    assert show(guest, "ActiveState") == "active"
    assert await_status(guest, ALL_READY) == ALL_READY
    assert show(guest, "NRestarts") == "0"
    shown = guest.run(["tpuagent", "status", "--json"], user=USER)
    assert shown.code == 0
    document = json.loads(shown.stdout)
    assert (document["state"], document["summary"]) == ("ready", ALL_READY)
    assert len(document["devices"]) == 8


def test_it_started_before_the_rest_of_the_system_and_nothing_of_it_failed(guest: Guest) -> None:
    assert guest.check(["systemctl", "list-units", "--failed", "--plain", "--no-legend"]) == ""
    assert "network" not in show(guest, "After")
    begun, basic = (
        int(guest.check(["systemctl", "show", unit, "--property", name, "--value"]))
        for unit, name in ((UNIT, "ExecMainStartTimestampMonotonic"), ("basic.target", "ActiveEnterTimestampMonotonic"))
    )
    assert begun < basic
    loud = guest.check(["journalctl", "--unit", UNIT, "--priority=warning", "--output=cat", "--quiet"])
    assert loud == ""


def test_interrupt_remapping_is_not_demanded_on_x86(guest: Guest) -> None:
    assert guest.read("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts").strip() == "Y"


def test_a_function_plugged_in_is_made_ready_and_one_pulled_out_is_forgotten(guest: Guest) -> None:
    journal = Journal(guest)
    identity, address = guest.plug("v6e")
    journal.wait_for(f"function_ready address={address}")
    nine = ALL_READY.replace("2 of 2 v6e", "3 of 3 v6e")
    assert await_status(guest, nine) == nine
    guest.unplug(identity)
    journal.wait_for(f"function_gone address={address}")
    assert await_status(guest, ALL_READY) == ALL_READY


def test_without_an_iommu_the_host_is_degraded_and_says_what_to_do(boot: Boot) -> None:
    guest = boot(Machine(("v5p", "tpu7x"), iommu=False), name="no-iommu")
    await_ready(guest)
    assert show(guest, "ActiveState") == "active"
    assert status_line(guest).startswith(
        "0 of 1 v5p, 0 of 1 tpu7x (0 chips) functions ready; 2 blocked: no IOMMU group"
    )
    refused = guest.run(["tpuagent", "bind", guest.address(0)])
    assert refused.code == 13
    assert "intel_iommu=on" in refused.stderr
    assert driver(guest, guest.address(0)) == ""
    assert guest.run(["tpuagent", "status"]).code == 1


def test_without_a_tpu_the_unit_is_active_and_weakens_nothing(boot: Boot) -> None:
    guest = boot(Machine(("network",)), name="no-tpu")
    await_ready(guest)
    assert show(guest, "ActiveState") == "active"
    assert await_status(guest, "no TPU functions on this host") == "no TPU functions on this host"
    assert guest.run(["tpuagent", "status"]).code == 0
    assert guest.read("/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts").strip() == "N"
    assert guest.check("tpuagent bind --all") == "no TPU functions on this host\n"


def test_a_kernel_without_the_module_is_named_and_the_agent_stays_up(boot: Boot, distribution: Distribution) -> None:
    if distribution != BOOKWORM:
        pytest.skip("the same on every distribution, and a boot costs half a minute")
    guest = boot(Machine(("v6e",)), name="no-module")
    guest.check("find /lib/modules -name 'vfio[-_]pci*' -delete; depmod", timeout_s=300)
    guest.reboot()
    await_ready(guest)
    assert show(guest, "ActiveState") == "active"
    line = status_line(guest)
    assert line.startswith("0 of 1 v6e functions ready")
    assert guest.check(["uname", "-r"]).strip() in line
    assert "linux-image" in line
    assert guest.run(["tpuagent", "bind", "--all"]).code == 14
