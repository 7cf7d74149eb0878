"""Is the virtual machine what the other tests take it for? Checked without the package, one boot a distribution."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from .channel import CommandFailed, CommandTimedOut, GuestError
from .conftest import SHARED
from .guest import Guest
from .image import BootImage
from .machine import EIGHT_CHIPS, Machine
from .progress import Say
from .recipe import BOOKWORM, USER, Distribution
from .tpudev import KINDS

PCI = "/sys/bus/pci/devices"


@pytest.fixture(scope="module")
def bare(distribution: Distribution, base_image: BootImage, say: Say) -> Iterator[Guest]:
    machine = replace(SHARED, google=True)
    with Guest(base_image, machine, name=f"{distribution.name}-bare", say=say) as booted:
        yield booted


def test_a_command_gives_its_output_its_errors_and_its_code(bare: Guest) -> None:
    result = bare.run("echo out; echo err >&2; exit 7")
    assert (result.code, result.stdout, result.stderr) == (7, "out\n", "err\n")
    assert bare.run("kill -TERM $$").code == -15
    with pytest.raises(CommandFailed, match="no such thing"):
        bare.check("echo no such thing >&2; false")
    with pytest.raises(GuestError, match="cannot start"):
        bare.run(["no-such-program"])


def test_commands_run_side_by_side_and_are_written_to_while_they_run(bare: Guest) -> None:
    first, second = bare.start(["cat"]), bare.start(["cat"])
    second.write("second\n")
    second.wait_for("second")
    first.write("first\n", end=True)
    assert first.wait().stdout == "first\n"
    second.kill(15)
    assert second.wait().code == -15


def test_a_command_that_takes_too_long_is_killed(bare: Guest) -> None:
    with pytest.raises(CommandTimedOut, match="begun"):
        bare.run("echo begun; exec sleep 1000", timeout_s=2)
    assert bare.run(["pgrep", "-x", "sleep"]).code == 1


def test_a_megabyte_goes_in_and_comes_out_as_it_was(bare: Guest) -> None:
    sent = bytes(range(256)) * 4096
    assert bare.check(["cat"], input=sent).encode("utf-8", "surrogateescape") == sent
    bare.write("/root/a folder/file", sent)
    assert bare.check(["stat", "--format=%s", "/root/a folder/file"]) == f"{len(sent)}\n"


def test_a_command_runs_as_the_user_that_was_asked_for(bare: Guest) -> None:
    assert bare.check("id -un; pwd; echo $HOME", user=USER).split() == [USER, f"/home/{USER}", f"/home/{USER}"]
    assert bare.run(["cat", "/etc/shadow"], user=USER).code == 1


def test_the_guest_boots_the_real_system_without_a_failed_unit(bare: Guest) -> None:
    assert bare.check(["systemctl", "is-active", "multi-user.target"]) == "active\n"
    assert bare.check(["systemctl", "list-units", "--failed", "--plain", "--no-legend"]) == ""
    assert bare.read("/sys/class/dmi/id/sys_vendor") == "Google\n"
    assert "systemd" in bare.check(["journalctl", "--boot", "--lines=5"])


def test_each_function_has_its_ids_its_reset_and_an_iommu_group_of_its_own(bare: Guest) -> None:
    groups = set()
    for number, kind in enumerate(SHARED.functions):
        folder, ids = f"{PCI}/{bare.address(number)}", KINDS[kind]
        shown = bare.check(f"cd {folder} && cat vendor device subsystem_vendor subsystem_device class reset_method")
        *numbers, reset = shown.split("\n")[:6]
        expected = (ids.vendor, ids.device, ids.subvendor, ids.subdevice, ids.class_code)
        assert tuple(int(text, 16) for text in numbers) == expected
        assert reset.split()[0] == "flr"
        groups.add(bare.check(["readlink", f"{folder}/iommu_group"]))
        assert len(bare.check(["ls", f"{folder}/iommu_group/devices"]).split()) == 1
    assert len(groups) == len(SHARED.functions)


def test_a_function_can_be_bound_to_vfio_pci_by_hand(bare: Guest) -> None:
    address = bare.address(0)
    bare.check("modprobe vfio-pci")
    bare.check(f"echo vfio-pci >{PCI}/{address}/driver_override && echo {address} >/sys/bus/pci/drivers/vfio-pci/bind")
    assert bare.check(["readlink", f"{PCI}/{address}/driver"]).strip().endswith("/vfio-pci")
    assert bare.check(f"ls /dev/vfio/$(basename $(readlink {PCI}/{address}/iommu_group))").startswith("/dev/vfio/")
    bare.check(f"echo {address} >/sys/bus/pci/drivers/vfio-pci/unbind && echo >{PCI}/{address}/driver_override")


def test_plugging_a_function_in_is_an_add_event_and_pulling_it_out_a_remove_event(bare: Guest) -> None:
    monitor = bare.start(["udevadm", "monitor", "--udev", "--subsystem-match=pci"])
    monitor.wait_for("UDEV")
    identity, address = bare.plug("v6e")
    assert bare.read(f"{PCI}/{address}/device") == "0x006f\n"
    monitor.wait_for(f"{address} (pci)")
    assert any(" add " in line and address in line for line in monitor.stdout.splitlines())
    bare.unplug(identity)
    monitor.wait_for(" remove ")
    assert bare.run(["test", "-e", f"{PCI}/{address}"]).code == 1
    monitor.kill()
    monitor.wait()


def test_the_metadata_address_can_be_served_on_loopback_and_docker_answers(bare: Guest) -> None:
    bare.check("ip address add 169.254.169.254/32 dev lo")
    server = bare.start(["python3", "-u", "-m", "http.server", "--bind", "169.254.169.254", "80"])
    server.wait_for("Serving")
    assert "200 OK" in bare.check("curl --silent --head http://169.254.169.254/")
    server.kill()
    answer = bare.check("curl --silent --unix-socket /run/docker.sock http://docker/_ping", timeout_s=120)
    assert answer == "OK"
    bare.check("ip address del 169.254.169.254/32 dev lo")


def test_a_guest_comes_back_from_a_reboot_and_powers_off(bare: Guest) -> None:
    before = bare.read("/proc/sys/kernel/random/boot_id")
    bare.write("/root/kept", "kept")
    bare.reboot()
    assert bare.read("/proc/sys/kernel/random/boot_id") != before
    assert bare.read("/root/kept") == "kept"
    assert bare.run(["ls", f"{PCI}/{bare.address(len(EIGHT_CHIPS) - 1)}"]).code == 0
    bare.poweroff()
    begin = time.monotonic()
    with pytest.raises(GuestError):
        bare.run(["true"])
    assert time.monotonic() - begin < 5


def test_without_an_iommu_there_are_functions_but_no_groups(
    base_image: BootImage, distribution: Distribution, say: Say
) -> None:
    if distribution != BOOKWORM:
        pytest.skip("one distribution is enough for a property of the machine")
    machine = Machine(("v5p", "tpu7x"), iommu=False, google=False)
    with Guest(base_image, machine, name="no-iommu", say=say, until="hello") as guest:
        assert guest.read(f"{PCI}/{guest.address(1)}/device") == "0x0076\n"
        assert guest.check(["ls", "/sys/kernel/iommu_groups"]) == ""
        assert guest.read("/sys/class/dmi/id/sys_vendor") != "Google\n"
