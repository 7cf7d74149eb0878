"""On a host at work: does the package come, change its version and go without disturbing chips, jobs and containers?

A job holds a chip and vBar runs through all of it. The tests are steps, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tpuagent.image import settings

from . import image, packages
from .agent import PCI, UNIT, devices, group_node, show
from .channel import Running
from .guest import Guest
from .machine import Machine
from .progress import Say
from .recipe import Distribution
from .stage import VBAR, Stage
from .test_operation import workload

SLOW_S = 240
SERVICE_TEST = Path(__file__).parents[2] / "packaging/debian/tests/service"
STATE = ("/etc/tpu-agent", "/run/tpu-agent", "/var/lib/tpu-agent")
# Everything on the root file system that has the package's name, but for the harness, packages and what was downloaded.
NAMED = r"""
find / -xdev \( -path /root -o -path /usr/local -o -path /var/lib/docker \) -prune -o \
    \( -name '*tpu-agent*' -o -name '*tpuagent*' \) ! -name '*tpu-agent-test*' -print
"""
REGISTERED = "cat /etc/passwd /etc/group; dpkg-statoverride --list; dpkg-divert --list"


@dataclass(frozen=True)
class Host:
    """A host with two chips, of which a job holds one, and versions of the package to install on it."""

    stage: Stage
    job: Running
    built: Path
    later: Path

    @property
    def guest(self) -> Guest:
        return self.stage.guest

    def install(self, package: Path) -> str:
        """As a script does it; the agent and vBar are up afterwards."""
        return self._awaiting(f"apt-get install --yes --allow-downgrades --reinstall /root/{package.name} <&-")

    def _awaiting(self, command: str) -> str:
        said: list[str] = []
        deed = ["env", "DEBIAN_FRONTEND=noninteractive", "sh", "-c", command]
        self.stage.after(
            lambda: said.append(self.guest.check(deed, timeout_s=SLOW_S)),
            "agent_ready",
            "container_running container=vbar",
            timeout_s=SLOW_S,
        )
        return said[0]

    def chips(self) -> str:
        """The drivers of the chips and the nodes of their groups: another inode would be another node."""
        addresses = self.guest.addresses("v6e")
        drivers = self.guest.check(["readlink", *(f"{PCI}/{address}/driver" for address in addresses)])
        nodes = [group_node(self.guest, address) for address in addresses]
        return drivers + self.guest.check(["stat", "--format=%n %i %a", *nodes])

    def vbar(self) -> tuple[str, str]:
        found = self.stage.inspect()
        return found["Id"], found["State"]["StartedAt"]

    def job_runs(self) -> bool:
        """Whether the job is there and has its chip open."""
        (entry,) = self.guest.check(["pgrep", "--full", "/root/holder.py"]).split()[:1]
        return "/dev/vfio/" in self.guest.check(f"ls -l /proc/{entry}/fd")

    def assert_whole(self, version: str) -> None:
        guest = self.guest
        shown = guest.check(["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}${Version}", "tpu-agent"])
        assert shown == f"ii {version}"
        assert guest.check(["dpkg", "--audit"]) == ""
        assert guest.check(["dpkg", "--verify", "tpu-agent"]) == ""
        assert (show(guest, "ActiveState"), show(guest, "UnitFileState")) == ("active", "enabled")
        self.assert_nothing_failed()

    def assert_nothing_failed(self) -> None:
        assert self.guest.check(["systemctl", "list-units", "--failed", "--plain", "--no-legend"]) == ""
        assert self.job_runs()


@pytest.fixture(scope="module")
def host(
    distribution: Distribution,
    docker_image: image.BootImage,
    package: Path,
    say: Say,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Host]:
    later = packages.later(package, tmp_path_factory.mktemp("later"))
    machine = Machine(("v6e", "v6e"), memory_mib=3072)
    with Guest(docker_image, machine, name=f"{distribution.name}-package", say=say) as guest:
        follow = guest.start(["journalctl", "--boot", "--unit", UNIT, "--follow", "--output=cat", "--lines=all"])
        follow.wait_for("container_running container=vbar", SLOW_S)
        follow.kill()
        follow.wait()
        for one in (package, later):
            guest.put(one, f"/root/{one.name}")
        with workload(guest, guest.address(0)) as job:
            yield Host(Stage(guest), job, package, later)


def version(package: Path) -> str:
    return package.name.split("_")[1]


def test_upgrade_downgrade_and_reinstallation_disturb_nothing_and_ask_nothing(host: Host) -> None:
    guest = host.guest
    chips, vbar = host.chips(), host.vbar()
    guest.check(["rm", settings.GRUB_DROP_IN])
    guest.write(settings.LIMITS_FILE, "# ours\n")
    for step in (host.later, host.built, host.built):
        host.install(step)
        host.assert_whole(version(step))
        assert (host.chips(), host.vbar()) == (chips, vbar)
    assert guest.read(settings.LIMITS_FILE) == "# ours\n"
    assert guest.run(["test", "-e", settings.GRUB_DROP_IN]).code == 1


def test_the_package_s_own_test_of_the_service_passes(host: Host) -> None:
    host.guest.put(SERVICE_TEST, "/root/service")
    host.guest.check(["/root/service"], timeout_s=SLOW_S)


def test_an_agent_that_was_stopped_and_disabled_stays_so_over_an_upgrade(host: Host) -> None:
    guest = host.guest
    guest.check(["systemctl", "disable", "--now", UNIT], timeout_s=SLOW_S)
    guest.check(["dpkg", "--install", f"/root/{host.later.name}"], timeout_s=SLOW_S)
    assert (show(guest, "ActiveState"), show(guest, "UnitFileState")) == ("inactive", "disabled")
    guest.check(["systemctl", "enable", "--now", UNIT], timeout_s=SLOW_S)
    host.assert_whole(version(host.later))


def test_removal_takes_vbar_and_leaves_chips_job_and_configuration(host: Host) -> None:
    guest, chips = host.guest, host.chips()
    assert "removed vbar" in guest.check("apt-get remove --yes tpu-agent <&-", timeout_s=SLOW_S)
    assert guest.run(["docker", "inspect", VBAR]).code != 0
    assert host.chips() == chips
    assert show(guest, "LoadState") == "not-found"
    guest.check(["test", "-e", "/etc/tpu-agent/config.yaml", "-a", "-e", settings.LIMITS_FILE])
    assert guest.run(["test", "-e", settings.UDEV_FILE]).code == 1
    assert guest.check(["dpkg", "--audit"]) == ""
    host.assert_nothing_failed()


def test_a_removed_package_comes_back_as_it_was(host: Host) -> None:
    chips = host.chips()
    host.install(host.built)
    host.assert_whole(version(host.built))
    assert host.chips() == chips
    assert host.guest.read(settings.LIMITS_FILE) == "# ours\n"


def test_purge_leaves_nothing_and_a_fresh_installation_on_the_running_host_brings_all(host: Host) -> None:
    guest, chips = host.guest, host.chips()
    registered = guest.check(REGISTERED)
    parameters = settings.render_kernel_parameters()
    guest.check(["dpkg", "--purge", "tpu-agent"], timeout_s=SLOW_S)
    assert_nothing_left(host, registered)

    guest.check(f"mkdir -p /boot/grub; update-grub; ! grep '{parameters}' /boot/grub/grub.cfg", timeout_s=SLOW_S)
    said = host.install(host.built)
    assert "tpu-agent: grub.cfg is regenerated" in said
    host.assert_whole(version(host.built))
    assert host.chips() == chips
    assert {entry["state"] for entry in devices(guest).values()} == {"ready"}
    assert parameters in guest.read("/boot/grub/grub.cfg")
    for path, source in settings.COPIED_FROM.items():
        guest.check(["cmp", path, source])

    assert "grub.cfg is regenerated" in guest.check("apt-get purge --yes tpu-agent <&-", timeout_s=SLOW_S)
    assert parameters not in guest.read("/boot/grub/grub.cfg")
    assert_nothing_left(host, registered)
    assert host.chips() == chips


def assert_nothing_left(host: Host, registered: str) -> None:
    guest = host.guest
    assert guest.check(NAMED) == ""
    assert guest.run(["ls", "-d", *STATE]).stdout == ""
    assert guest.check(REGISTERED) == registered
    assert guest.run(["docker", "inspect", VBAR]).code != 0
    assert guest.check(["dpkg", "--audit"]) == ""
    host.assert_nothing_failed()
