"""Do the files that are installed as they are say what the rest relies on?"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tpuagent import config, errors
from tpuagent.containers.spec import Policy as ContainerPolicy
from tpuagent.devices.policy import Policy
from tpuagent.host import Host
from tpuagent.metadata.policy import Policy as MetadataPolicy

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "systemd/tpu-agent.service"
SHIPPED_CONFIG = ROOT / "packaging/config.yaml"


def unit_lines() -> list[tuple[str, str]]:
    lines = UNIT.read_text().splitlines()
    return [(key, value) for key, _, value in (line.partition("=") for line in lines if line[:1].isalpha())]


def unit_values(key: str) -> list[str]:
    return [word for name, value in unit_lines() if name == key for word in value.split()]


def test_no_hardening_takes_away_what_the_agent_works_on() -> None:
    broken_by = {
        "ProtectKernelTunables", "ProtectKernelModules", "ProtectClock", "ProtectHome", "ProtectProc", "ProcSubset",
        "PrivateDevices", "PrivateNetwork", "PrivateTmp", "PrivateUsers", "DynamicUser", "DevicePolicy", "DeviceAllow",
        "ReadOnlyPaths", "MemoryDenyWriteExecute",
    }  # fmt: skip
    assert not broken_by & {key for key, _ in unit_lines()}
    assert unit_values("ProtectSystem") == ["yes"], "full and strict make /etc read-only"
    assert {"AF_UNIX", "AF_NETLINK", "AF_INET", "AF_INET6"} <= set(unit_values("RestrictAddressFamilies"))


def test_the_unit_waits_for_neither_the_network_nor_docker_nor_holds_the_boot_up() -> None:
    waits_for = {*unit_values("After"), *unit_values("Requires"), *unit_values("Wants"), *unit_values("BindsTo")}
    assert not [unit for unit in waits_for if "network" in unit or "docker" in unit]
    assert unit_values("DefaultDependencies") == ["no"]
    assert unit_values("Before") == ["shutdown.target"]


def test_a_bad_configuration_does_not_restart_in_a_loop_and_anything_else_is_tried_again() -> None:
    assert unit_values("RestartPreventExitStatus") == [str(errors.ConfigError.exit_code)]
    assert unit_values("Restart") == ["on-failure"]
    assert unit_values("StartLimitIntervalSec") == ["0"]


def test_a_stop_neither_signals_nor_awaits_a_write_that_waits_in_the_kernel_and_keeps_the_run_state() -> None:
    assert unit_values("KillMode") == ["process"]
    assert unit_values("RuntimeDirectoryPreserve") == ["yes"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd here")
def test_systemd_reads_the_unit_without_a_warning(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/usr/bin/tpuagent", "/bin/true"))
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    about_it = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, about_it) == (0, [])


def test_the_mode_of_accel_nodes_hangs_on_no_group() -> None:
    (rule,) = [line for line in (ROOT / "systemd/60-tpu-agent.rules").read_text().splitlines() if line[0] != "#"]
    assert 'MODE="0666"' in rule
    assert "GROUP" not in rule


def test_the_shipped_configuration_changes_nothing(tmp_path: Path) -> None:
    installed = tmp_path / "etc/tpu-agent/config.yaml"
    installed.parent.mkdir(parents=True)
    shutil.copy(SHIPPED_CONFIG, installed)
    assert config.load(Host(str(tmp_path))) == config.Config(Policy(), MetadataPolicy(), ContainerPolicy(), {})


def test_the_shipped_configuration_shows_every_key_with_its_default(tmp_path: Path) -> None:
    lines = SHIPPED_CONFIG.read_text().splitlines()
    text = "\n".join(line[1:] for line in lines if not re.match("#( [^ ]|$)", line))
    shown = tmp_path / "shown.yaml"
    shown.write_text(text)
    read = config.load(Host("/"), str(shown))
    assert (read.devices, read.metadata, read.containers) == (Policy(), MetadataPolicy(), ContainerPolicy())
    keys = [one.key for one in config.explain(read)]
    assert [key for key in keys if key[-1] not in text] == []
    assert {one.origin for one in config.explain(read)} != {"default"}


def test_the_command_imports_nothing_but_the_door() -> None:
    source = (ROOT / "packaging/tpuagent").read_text()
    imports = [
        ast.unparse(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert imports == ["import sys", "from tpuagent.cli import entry"]
    assert source.startswith("#!/usr/bin/python3 -IS\n"), "any other flag reads the caller's environment or .pth files"


@pytest.mark.parametrize("script", ["tpu-agent.postinst", "tpu-agent.prerm", "tpu-agent.postrm", "grub.sh"])
def test_the_maintainer_scripts_are_sound_shell(script: str) -> None:
    subprocess.run(["sh", "-n", ROOT / "packaging/debian" / script], check=True)
