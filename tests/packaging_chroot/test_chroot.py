"""Does the package install, upgrade and go where an image is built: in a chroot, offline, with nothing running?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuagent.image import settings

from .root import Root

pytestmark = pytest.mark.chroot

CONFIG = "/etc/tpu-agent/config.yaml"
ENABLED = "/etc/systemd/system/multi-user.target.wants/tpu-agent.service"
ASKED = "/systemctl-was-asked"

# What dpkg, apt's tools and systemd's helper note down about any package.
BOOKKEEPING = (
    "/var/lib/dpkg/", "/var/log/dpkg.log", "/var/lib/systemd/deb-systemd-helper-", "/var/cache/", "/usr/lib/python3",
)  # fmt: skip


def pretend_that_systemd_runs(root: Root) -> None:
    """Record what the maintainer scripts ask systemctl for."""
    script = f'echo "$@" >>{ASKED}\ncase "$*" in *is-enabled*) echo enabled ;; *show*) echo LoadState=loaded ;; esac\n'
    root.write("/usr/bin/systemctl", f"#!/bin/sh\n{script}", mode=0o755)
    root.shell("mkdir -p /run/systemd/system")


def asked_for(root: Root) -> list[str]:
    """Verbs with which systemctl was asked to do something to the unit, in order."""
    lines = root.shell(f"cat {ASKED} 2>/dev/null || true").splitlines()
    verbs = [word for line in lines if "tpu-agent.service" in line for word in line.split()]
    return [verb for verb in verbs if verb in {"start", "restart", "try-restart", "stop"}]


def kept(root: Root) -> set[str]:
    """Files that are there because of the package, beyond anybody's bookkeeping."""
    return {path for path in root.written() if not path.startswith(BOOKKEEPING)}


def test_an_image_build_gets_the_unit_enabled_and_not_started(root: Root, package: Path) -> None:
    printed = root.install(package)
    assert root.run("readlink", ENABLED).strip().endswith("/lib/systemd/system/tpu-agent.service")
    assert "Failed" not in printed
    assert "rror" not in printed


def test_the_package_leaves_its_own_files_in_an_image_and_no_state(installed: Root) -> None:
    own = set(installed.run("dpkg", "--listfiles", "tpu-agent").splitlines())
    own |= {path.replace("/lib/", "/usr/lib/", 1) for path in own if path.startswith("/lib/")}
    copies = set(settings.COPIED_FROM)
    remembered = {f"/var/lib/tpu-agent/put/{path.rpartition('/')[2]}" for path in copies}
    assert kept(installed) - own == {CONFIG, ENABLED} | copies | remembered


def test_a_running_system_starts_the_agent(root: Root, package: Path) -> None:
    pretend_that_systemd_runs(root)
    root.install(package)
    assert asked_for(root) == ["start"]


def test_a_policy_that_forbids_services_is_obeyed(root: Root, package: Path, later_package: Path) -> None:
    pretend_that_systemd_runs(root)
    root.write("/usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", mode=0o755)
    root.install(package)
    root.install(later_package)
    assert asked_for(root) == []


def test_an_upgrade_restarts_the_agent_and_never_stops_it_first(root: Root, package: Path, later_package: Path) -> None:
    pretend_that_systemd_runs(root)
    root.install(package)
    root.install(later_package)
    assert asked_for(root) == ["start", "restart"]


def test_a_removal_stops_the_agent(root: Root, package: Path) -> None:
    pretend_that_systemd_runs(root)
    root.install(package)
    root.run("dpkg", "--remove", "tpu-agent")
    assert asked_for(root) == ["start", "stop"]


@pytest.mark.parametrize("udevadm", ["mv $(command -v udevadm) /away", "ln -sf /bin/false $(command -v udevadm)"])
def test_udev_that_is_missing_or_does_not_answer_is_not_fatal(root: Root, package: Path, udevadm: str) -> None:
    listening = "import os, socket; os.makedirs('/run/udev'); socket.socket(socket.AF_UNIX).bind('/run/udev/control')"
    root.run("python3", "-c", listening)
    root.shell(udevadm)
    root.install(package)


@pytest.mark.parametrize(
    "state",
    [
        "true  # never started",
        "ln -s /dev/null /etc/systemd/system/tpu-agent.service  # masked",
        "rm /lib/systemd/system/tpu-agent.service",
        "printf '#!/bin/sh\\nexit 5\\n' >/usr/bin/systemctl; chmod +x /usr/bin/systemctl; mkdir -p /run/systemd/system",
    ],
)
def test_the_package_goes_whatever_became_of_its_unit(installed: Root, state: str) -> None:
    installed.shell(state)
    installed.run("dpkg", "--remove", "tpu-agent")
    installed.run("dpkg", "--purge", "tpu-agent")


def test_purge_leaves_nothing_and_remove_leaves_the_configuration(installed: Root) -> None:
    installed.write("/etc/tpu-agent/config.d/site.yaml", "devices: {group: kvm}\n")
    installed.write("/run/tpu-agent/records.json", "{}")
    installed.run("dpkg", "--remove", "tpu-agent")
    installed.run("test", "-e", CONFIG)
    installed.run("dpkg", "--purge", "tpu-agent")
    installed.shell("test ! -e /etc/tpu-agent; test ! -e /run/tpu-agent")
    assert kept(installed) == set()
    assert "tpuagent" not in installed.shell("ls /usr/lib/python3/dist-packages")


def test_an_edited_configuration_survives_an_upgrade_that_asks_nobody(installed: Root, later_package: Path) -> None:
    edited = 'devices:\n  mode: "0660"\n'
    installed.write(CONFIG, edited)
    installed.install(later_package)
    assert installed.run("cat", CONFIG) == edited


def test_a_configuration_that_an_image_build_put_there_first_stays(root: Root, package: Path) -> None:
    root.write(CONFIG, "devices: {group: kvm}\n")
    root.install(package)
    assert root.run("cat", CONFIG) == "devices: {group: kvm}\n"


def test_a_deleted_configuration_stays_deleted(installed: Root, later_package: Path) -> None:
    installed.run("rm", CONFIG)
    installed.install(later_package)
    installed.run("test", "!", "-e", CONFIG)


def test_no_pip_is_needed_where_python_belongs_to_the_distribution(installed: Root) -> None:
    installed.shell("ls /usr/lib/python3.*/EXTERNALLY-MANAGED; ! command -v pip; ! python3 -m pip 2>/dev/null")


def test_every_module_imports_with_what_the_package_depends_on(installed: Root) -> None:
    script = """
import importlib, pkgutil, sys
sys.path.append("/usr/lib/python3/dist-packages")
import tpuagent
for module in pkgutil.walk_packages(tpuagent.__path__, "tpuagent."):
    if module.name != "tpuagent.__main__":
        importlib.import_module(module.name)
        print(module.name)
"""
    assert "tpuagent.agent" in installed.run("python3", "-IS", "-W", "error", "-c", script).split()


def test_the_command_answers_with_the_installed_configuration(installed: Root) -> None:
    assert "usage" in installed.run("tpuagent", "--help").lower()
    assert "0666" in installed.run("tpuagent", "config")


def test_the_modules_are_compiled_when_they_are_installed(installed: Root) -> None:
    count = "cd /usr/lib/python3/dist-packages/tpuagent; find . -name '*{}' | wc -l"
    assert installed.shell(count.format(".py")) == installed.shell(count.format(".pyc")) != "0\n"


def test_the_udev_rule_is_one_that_udev_understands(installed: Root) -> None:
    installed.shell(
        "if udevadm verify --help >/dev/null 2>&1; then udevadm verify /lib/udev/rules.d/60-tpu-agent.rules; fi"
    )
