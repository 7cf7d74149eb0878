"""Is each exit code reached by what it stands for, and is what is printed what was done?"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, RunPython, start_unbind
from tests.fakes.machine import Machine, ModuleState
from tpuagent import cli, config, configfiles, status
from tpuagent.devices import reconcile
from tpuagent.devices.pci import Address
from tpuagent.devices.report import Pass
from tpuagent.devices.work import RECORDS
from tpuagent.host import Host

DEVICE_KEYS = {"address", "generation", "driver", "group", "node", "mode", "state", "reason", "holders"}
VERBS = ("status", "devices", "bind", "unbind", "config")


class Command:
    """The command on one machine, called as a function; it remembers what was said."""

    def __init__(self, machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
        self.machine = machine
        self.out = self.err = ""
        self._capsys = capsys

    def __call__(self, *arguments: str) -> int:
        self._capsys.readouterr()
        try:
            return cli.main(arguments, host=self.machine.host)
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            self.out, self.err = self._capsys.readouterr()


@pytest.fixture
def tpuagent(machine: Machine, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(machine, capsys)


def arguments_for(machine: Machine, *arguments: str) -> list[str]:
    """The command as a process of its own."""
    return [sys.executable, "-m", "tests.fakes", machine.root, *arguments]


# Exit codes, each by what it stands for ---------------------------------------------------------------------------


def nothing_to_do(machine: Machine) -> list[str]:
    machine.add_function("v5p")
    assert cli.main(["bind", "--all"], host=machine.host) == 0
    return ["bind", "--all"]


def no_such_function(machine: Machine) -> list[str]:
    machine.add_function("v5p")
    return ["bind", "0000:00:1f.0"]


def a_network_card(machine: Machine) -> list[str]:
    return ["bind", machine.add_other("network", driver="gve")]


def an_excluded_function(machine: Machine) -> list[str]:
    address = machine.add_function("v5p")
    machine.tree.put(configfiles.CONFIG_FILE, f"devices:\n  exclude: [{address}]\n")
    return ["bind", address]


def a_held_function(machine: Machine) -> list[str]:
    address = machine.add_function("v5p")
    assert cli.main(["bind", "--all"], host=machine.host) == 0
    machine.hold(address)
    return ["unbind", address]


def a_shared_group(machine: Machine) -> list[str]:
    machine.add_function("v5p", group="7")
    machine.add_other("network", driver="gve", group="7")
    return ["bind", "--all"]


def a_machine_without_modules(machine: Machine) -> list[str]:
    shutil.rmtree(machine.root)
    Machine.create(machine.root, vfio_modules="absent").add_function("v5p")
    return ["bind", "--all"]


def a_machine_without_an_iommu(machine: Machine) -> list[str]:
    shutil.rmtree(machine.root)
    Machine.create(machine.root, iommu=False).add_function("v5p")
    return ["bind", "--all"]


def a_driver_that_fails(machine: Machine) -> list[str]:
    machine.add_function("v5p")
    machine.refuse("*/vfio-pci/bind", 22)
    return ["bind", "--all"]


def a_bind_that_does_nothing(machine: Machine) -> list[str]:
    machine.add_function("v5p")
    machine.swallow("*/vfio-pci/bind")
    return ["bind", "--all"]


def a_node_that_never_comes(machine: Machine) -> list[str]:
    machine.add_function("v5p")
    machine.delay_nodes(float("inf"))
    return ["bind", "--all"]


def an_unbind_that_waits_in_the_kernel(machine: Machine) -> list[str]:
    address = machine.add_function("v5p")
    assert cli.main(["bind", "--all"], host=machine.host) == 0
    machine.hold(address)
    start_unbind(machine, address)
    return ["bind", address]


def one_good_and_one_held(machine: Machine) -> list[str]:
    held = machine.add_function("v5p")
    machine.add_function("v5p")
    assert cli.main(["bind", "--all"], host=machine.host) == 0
    machine.hold(held)
    return ["unbind", "--all"]


def a_sysfs_that_is_read_only(machine: Machine) -> list[str]:
    machine.add_function("v5p")
    machine.refuse("/sys/*", 30, times=100)
    return ["bind", "--all"]


def a_bad_configuration(machine: Machine) -> list[str]:
    machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  moed: 0666\n")
    return ["devices"]


def a_folder_where_the_status_should_be(machine: Machine) -> list[str]:
    machine.tree.folder(status.STATUS_FILE)
    return ["status"]


# The code, the situation, and what the one line of error must tell: whom it concerns, why, and what to do next.
SITUATIONS: list[tuple[int, Callable[[Machine], list[str]], str]] = [
    (0, nothing_to_do, ""),
    (1, a_folder_where_the_status_should_be, "unexpected"),
    (2, lambda _: ["bind"], "tpuagent devices"),
    (2, lambda _: ["unbind"], "tpuagent devices"),
    (2, lambda _: ["bind", "--all", "00:04.0"], "--all"),
    (2, lambda _: ["bind", "0000:00:04.8"], "'0000:00:04.8'"),
    (2, lambda _: ["bind", "00:04.0\n"], r"'00:04.0\n'"),
    (2, lambda _: ["unbind", "../../etc"], "'../../etc'"),
    (3, lambda _: ["status"], ""),
    (10, no_such_function, "0000:00:1f.0"),
    (11, a_network_card, "1ae0:0042:1ae0:0058"),
    (11, an_excluded_function, "devices.exclude"),
    (12, a_held_function, "(python3 train.py)"),
    (13, a_machine_without_an_iommu, "intel_iommu=on"),
    (13, a_shared_group, "(gve)"),
    (14, a_machine_without_modules, "module"),
    (15, a_driver_that_fails, "(EINVAL)"),
    (15, a_bind_that_does_nothing, "dmesg"),
    (16, a_node_that_never_comes, "/dev/vfio/11"),
    (17, an_unbind_that_waits_in_the_kernel, "release pending"),
    (18, one_good_and_one_held, "(python3 train.py)"),
    (77, a_sysfs_that_is_read_only, "read-only"),
    (78, a_bad_configuration, "config.yaml: line 2: devices.moed: "),
]


@pytest.mark.parametrize(("code", "situation", "told"), SITUATIONS)
def test_each_exit_code_is_reached_by_what_it_stands_for(
    tpuagent: Command, code: int, situation: Callable[[Machine], list[str]], told: str
) -> None:
    arguments = situation(tpuagent.machine)
    assert tpuagent(*arguments) == code, tpuagent.err
    assert told in tpuagent.err
    assert all(line.startswith("tpuagent: cannot ") or code == 1 for line in tpuagent.err.splitlines())
    for name in tpuagent.machine.tree.names("/proc"):
        tpuagent.machine.let_go(int(name))


@pytest.mark.parametrize("arguments", [[], ["bnid"], ["--config"], ["status", "extra"], ["devices", "-x"]])
def test_what_argparse_refuses_is_a_usage_error_on_stderr(tpuagent: Command, arguments: list[str]) -> None:
    assert tpuagent(*arguments) == 2
    assert tpuagent.out == ""
    assert "usage: tpuagent" in tpuagent.err


def test_all_codes_are_distinct_and_in_every_commands_help(tpuagent: Command) -> None:
    for verb in VERBS:
        assert tpuagent(verb, "--help") == 0
        words = tpuagent.out.replace("\n", " ")
        for code in (0, 1, 2, 10, 11, 12, 13, 14, 15, 16, 17, 18, 77, 78):
            assert f" {code} " in words


@contextmanager
def somebody_else() -> Iterator[None]:
    """Be no root for a while."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


@pytest.mark.parametrize("verb", ["bind", "unbind"])
def test_who_is_not_root_is_told_so_and_may_ask_for_the_steps(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    root = tempfile.mkdtemp()
    try:
        os.chmod(root, 0o755)
        machine = Machine.create(root)
        machine.add_function("v5p")
        assert cli.main(["devices"], host=Host(root)) == 0  # imports what only root may read where Python is root's own
        with somebody_else():
            assert cli.main([verb, "--all"], host=Host(root)) == 77
            assert "sudo" in capsys.readouterr().err
            assert cli.main([verb, "--all", "--dry-run"], host=Host(root)) == 0
            assert cli.main(["devices"], host=Host(root)) == 0
        assert machine.tree.names("/run") == []
    finally:
        shutil.rmtree(root)


# What is done and what is said ------------------------------------------------------------------------------------


def test_binding_says_what_was_done_and_then_that_it_is_so(tpuagent: Command) -> None:
    address = tpuagent.machine.add_function("v5p")
    assert tpuagent("bind", address) == 0
    assert tpuagent.out == f"{address} is bound to vfio-pci, its node is /dev/vfio/11\n"
    assert tpuagent("bind", address) == 0
    assert tpuagent.out == f"{address} is already bound to vfio-pci, its node is /dev/vfio/11\n"
    assert tpuagent.machine.mode("/dev/vfio/11") == 0o666
    assert tpuagent.err == ""


def test_unbinding_gives_the_function_back_and_says_to_whom(tpuagent: Command) -> None:
    address = tpuagent.machine.add_function("v5p", driver="gasket")
    assert tpuagent("bind", address) == 0
    assert tpuagent("unbind", address) == 0
    assert tpuagent.out == f"{address} is released, its driver is gasket\n"
    assert tpuagent.machine.driver(address) == "gasket"
    assert tpuagent("unbind", address) == 0
    assert "already" in tpuagent.out


@pytest.mark.parametrize("typed", ["0000:00:0a.0", "0000:00:0A.0", "00:0a.0", "00:0A.0"])
def test_an_address_may_be_short_and_in_upper_case(tpuagent: Command, typed: str) -> None:
    tpuagent.machine.add_function("v5p", address="0000:00:0a.0")
    assert tpuagent("bind", typed) == 0
    assert tpuagent.machine.driver("0000:00:0a.0") == "vfio-pci"


def test_an_address_given_twice_is_one_function(tpuagent: Command) -> None:
    address = tpuagent.machine.add_function("v5p")
    assert tpuagent("bind", address, address) == 0
    assert len(tpuagent.out.splitlines()) == 1


def test_only_the_named_functions_are_touched(tpuagent: Command) -> None:
    first, second = (tpuagent.machine.add_function("v5p") for _ in range(2))
    assert tpuagent("bind", second) == 0
    assert tpuagent.machine.driver(first) is None
    assert first not in tpuagent.out


def test_one_bad_address_keeps_all_from_being_touched(tpuagent: Command) -> None:
    address = tpuagent.machine.add_function("v5p")
    assert tpuagent("bind", address, "00:1f.0") == 10
    assert tpuagent.machine.driver(address) is None


@pytest.mark.parametrize("verb", ["bind", "unbind"])
def test_all_of_nothing_is_done(tpuagent: Command, verb: str) -> None:
    assert tpuagent(verb, "--all") == 0
    assert tpuagent.out == "no TPU functions on this host\n"


def test_of_several_functions_the_good_ones_are_done_and_the_bad_one_is_named(tpuagent: Command) -> None:
    addresses = [tpuagent.machine.add_function("v6e") for _ in range(3)]
    tpuagent.machine.refuse("*/vfio-pci/bind", 22, text=addresses[1])
    assert tpuagent("bind", "--all") == 18
    assert [line.split()[0] for line in tpuagent.out.splitlines()] == [addresses[0], addresses[2]]
    assert tpuagent.err.startswith(f"tpuagent: cannot bind {addresses[1]} to vfio-pci: ")
    assert len(tpuagent.err.splitlines()) == 1


def test_the_devices_are_shown_with_their_holders_and_what_is_left_alone(tpuagent: Command) -> None:
    machine = tpuagent.machine
    address, excluded = machine.add_function("v5p"), machine.add_function("v5p")
    machine.tree.put(configfiles.CONFIG_FILE, f"devices:\n  exclude: [{excluded}]\n")
    assert tpuagent("bind", "--all") == 0
    pid = machine.hold(address)
    assert tpuagent("devices") == 0
    assert [line.split()[0] for line in tpuagent.out.splitlines()[:2]] == ["ADDRESS", address]
    assert f"held by process {pid} (python3 train.py)" in tpuagent.out
    assert excluded not in tpuagent.out
    assert f"left alone (devices.exclude): {excluded}" in tpuagent.err


def test_looking_changes_nothing_on_disk(tpuagent: Command) -> None:
    tpuagent.machine.add_function("v5p", driver="gasket")
    for arguments in (["devices"], ["devices", "--json"], ["bind", "--all", "--dry-run"], ["config"], ["status"]):
        tpuagent(*arguments)
    assert tpuagent.machine.tree.names("/run") == []


# Dry run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modules", ["available", "loaded", "builtin"])
@pytest.mark.parametrize("driver", [None, "gasket"])
def test_the_steps_of_a_dry_run_are_those_that_are_then_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], modules: ModuleState, driver: str | None
) -> None:
    # That a module brings iommufd along shows only when it is loaded.
    machine = Machine.create(str(tmp_path), vfio_modules=modules, cdevs=modules != "available")
    tpuagent = Command(machine, capsys)
    for _ in range(2):
        machine.add_function("v5p", driver=driver)
    policy = config.load(machine.host).devices
    for verb, act in (("bind", reconcile.bind), ("unbind", reconcile.unbind)):
        assert tpuagent(verb, "--all", "--dry-run") == 0
        outcome = act(machine.host, policy, None)
        taken = [str(step) for step in (*outcome.steps, *(step for one in outcome.reports for step in one.steps))]
        assert tpuagent.out.splitlines() == taken
        assert taken, "otherwise this says nothing"


def test_a_dry_run_takes_no_step_and_forgets_nothing(tpuagent: Command) -> None:
    machine = tpuagent.machine
    address = machine.add_function("v5p", driver="gasket")
    assert tpuagent("bind", address, "--dry-run") == 0
    assert (machine.driver(address), machine.override(address)) == ("gasket", None)
    assert tpuagent("bind", address) == 0
    remembered = machine.host.read(RECORDS)
    assert tpuagent("unbind", address, "--dry-run") == 0
    assert tpuagent.out.splitlines() == [
        f"{address} set driver override to gasket",
        f"{address} unbind from vfio-pci",
        f"{address} bind to gasket",
        f"{address} clear driver override",
    ]
    assert machine.driver(address) == "vfio-pci"
    assert machine.host.read(RECORDS) == remembered


def test_a_dry_run_ends_with_the_code_that_the_run_would_end_with(tpuagent: Command) -> None:
    arguments = a_held_function(tpuagent.machine)
    assert tpuagent(*arguments, "--dry-run") == 12
    assert tpuagent.out == "nothing to do\n"
    assert tpuagent("bind", "00:1f.0", "--dry-run") == 10


def test_a_dry_run_of_what_is_right_already_has_nothing_to_do(tpuagent: Command) -> None:
    assert tpuagent(*nothing_to_do(tpuagent.machine), "--dry-run") == 0
    assert (tpuagent.out, tpuagent.err) == ("nothing to do\n", "")


# JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["devices"], ["bind", "--all"], ["unbind", "--all"]])
def test_each_list_of_functions_has_the_documented_keys(tpuagent: Command, arguments: list[str]) -> None:
    for _ in range(2):
        tpuagent.machine.add_function("v5p")
    assert tpuagent(*arguments, "--json") == 0
    functions = json.loads(tpuagent.out)
    assert [set(one) for one in functions] == [DEVICE_KEYS] * 2


@pytest.mark.parametrize("arguments", [["devices"], ["bind", "--all"], ["unbind", "--all"]])
def test_no_function_is_an_empty_list(tpuagent: Command, arguments: list[str]) -> None:
    assert tpuagent(*arguments, "--json") == 0
    assert json.loads(tpuagent.out) == []


def test_json_of_a_failed_bind_is_still_json_with_the_error_on_stderr(tpuagent: Command) -> None:
    assert tpuagent(*a_driver_that_fails(tpuagent.machine), "--json") == 15
    (function,) = json.loads(tpuagent.out)
    assert function["state"] == "failed"
    assert function["reason"] in tpuagent.err


@pytest.mark.parametrize("verb", ["bind", "unbind"])
def test_json_of_a_dry_run_is_json(tpuagent: Command, verb: str) -> None:
    address = tpuagent.machine.add_function("v5p")
    if verb == "unbind":
        assert tpuagent("bind", "--all") == 0
    assert tpuagent(verb, address, "--dry-run") == 0
    steps = tpuagent.out.splitlines()
    assert tpuagent(verb, address, "--dry-run", "--json") == 0
    said = json.loads(tpuagent.out)
    assert steps
    assert all(step in json.dumps(said) for step in steps)


def test_the_configuration_as_json_has_key_value_and_origin(tpuagent: Command) -> None:
    tpuagent.machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  mode: 0660\n")
    assert tpuagent("config", "--json") == 0
    said = json.loads(tpuagent.out)
    assert {**said[0], "value": said[0]["value"].strip('"')} == {
        "key": "devices.mode",
        "value": "0660",
        "origin": "/etc/tpu-agent/config.yaml:2",
    }
    assert {one["origin"] for one in said[1:]} == {"default"}


def test_the_status_of_no_agent_is_json_too(tpuagent: Command) -> None:
    assert tpuagent("status", "--json") == 3
    assert json.loads(tpuagent.out)["state"] == "not running"


# Configuration ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [["--config", "/other.yaml", "config"], ["config", "--config", "/other.yaml"]])
def test_another_configuration_may_be_named_before_and_after_the_verb(tpuagent: Command, order: list[str]) -> None:
    tpuagent.machine.tree.put("/other.yaml", "devices:\n  group: tpu\n")
    tpuagent.machine.tree.put(configfiles.CONFIG_FILE, "devices:\n  mode: 0600\n")
    assert tpuagent(*order) == 0
    assert [
        line.split("#")[1].strip() for line in tpuagent.out.splitlines() if "#" in line and "default" not in line
    ] == ["/other.yaml:2"]


@pytest.mark.parametrize("verb", ["devices", "config", "bind --all", "unbind --all", "bind --all --dry-run"])
def test_a_named_configuration_that_is_not_there_is_an_error_for_every_verb(tpuagent: Command, verb: str) -> None:
    tpuagent.machine.add_function("v5p")
    assert tpuagent(*verb.split(), "--config", "/missing.yaml") == 78
    assert tpuagent.err == "tpuagent: cannot read /missing.yaml: there is no such file (ENOENT)\n"
    assert tpuagent.machine.tree.names("/run") == []


def test_what_config_prints_is_a_configuration(tpuagent: Command) -> None:
    tpuagent.machine.tree.put(
        configfiles.CONFIG_FILE,
        "devices:\n  mode: 0660\n  group: tpu\n  exclude: [00:0A.0]\n  generations: {v9: 1ae0:0009:1ae0:0009}\n",
    )
    assert tpuagent("config") == 0
    tpuagent.machine.tree.put("/printed.yaml", tpuagent.out)
    host = tpuagent.machine.host
    assert config.load(host, "/printed.yaml").devices == config.load(host).devices


# As a process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["devices"], ["config"], ["devices", "--json"], ["bind", "--help"], ["--version"]]
)
def test_a_reader_that_has_seen_enough_is_no_fault(machine: Machine, arguments: list[str]) -> None:
    machine.add_function("v5p")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        arguments_for(machine, *arguments),
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    remark = "" if os.geteuid() == 0 or "--json" in arguments else "who holds a function is shown to root only\n"
    assert done.returncode == 0
    assert done.stderr in ("", remark)


def test_an_interrupt_while_the_kernel_waits_ends_the_command_and_not_the_wait(machine: Machine) -> None:
    address = machine.add_function("v5p")
    gate = machine.stop_at("*/vfio-pci/bind")
    with subprocess.Popen(
        arguments_for(machine, "bind", address),
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            gate.wait_reached()
            command.send_signal(signal.SIGINT)
            out, err = command.communicate(timeout=4)
        finally:
            command.kill()
    assert (command.returncode, out, err) == (130, "", "")
    with machine.host.lock(reconcile.LOCK, 1):
        assert machine.driver(address) is None
    gate.open()


def test_nothing_that_is_printed_has_colours(machine: Machine) -> None:
    machine.add_function("v5p")
    machine.refuse("*/vfio-pci/bind", 22)
    for arguments in (["bind", "--all"], ["devices"], ["--help"], ["nonsense"]):
        done = subprocess.run(arguments_for(machine, *arguments), cwd=REPOSITORY, capture_output=True, check=False)
        assert b"\x1b" not in done.stdout + done.stderr


def test_an_unexpected_fault_is_one_line_and_a_trace_for_who_asks(machine: Machine, run_python: RunPython) -> None:
    arguments = a_folder_where_the_status_should_be(machine)
    said = run_python("-m", "tests.fakes", machine.root, *arguments)
    assert said.returncode == 1
    assert said.stderr.count("\n") == 1
    assert "TPUAGENT_TRACE=1" in said.stderr
    said = run_python("-m", "tests.fakes", machine.root, *arguments, environment={"TPUAGENT_TRACE": "1"})
    assert said.returncode == 1
    assert "Traceback" in said.stderr


def test_standard_streams_that_the_caller_has_closed_are_no_trap(tmp_path: Path) -> None:
    # A pipe to a child that took the number of a standard stream would be lost in it.
    script = """
import os, sys
found = sys.argv.pop()
def note(event, facts):
    if event == "open" and "status.json" in str(facts[0]):  # what the command looks at
        streams = [os.path.exists(f"/proc/self/fd/{number}") for number in (0, 1, 2)]
        with open(found, "w") as file:
            print(*streams, file=file)
sys.addaudithook(note)
from tpuagent.cli import entry
entry()
"""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "-", sys.executable, "-c", script, "status", str(tmp_path / "found")],
        cwd=REPOSITORY, check=False,
    )  # fmt: skip
    assert done.returncode in {0, 1, 3}, "what this machine's own agent says, if it has one"
    assert (tmp_path / "found").read_text() == "True True True\n"


# What is imported -------------------------------------------------------------------------------------------------

_IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
from tpuagent import cli
from tpuagent.host import Host
try:
    code = cli.main(sys.argv[3:], host=Host(sys.argv[2]))
finally:
    print(*sorted(sys.modules), file=sys.stderr)
"""


def imported_by(run_python: RunPython, root: str, *arguments: str) -> set[str]:
    # Without site: what an environment's .pth files import is not the command's.
    done = run_python("-S", "-c", _IMPORTS, str(REPOSITORY), root, *arguments)
    assert "Traceback" not in done.stderr
    return set(done.stderr.splitlines()[-1].split())


HEAVY = {
    "yaml",
    "structlog",
    "pyudev",
    "sdnotify",
    "requests",
    "subprocess",
    "asyncio",
    "logging",
    "socket",
    "threading",
}


def test_status_imports_next_to_nothing(tmp_path: Path, run_python: RunPython) -> None:
    (tmp_path / "proc").symlink_to("/proc")
    mine = status.started_ticks(Host(), os.getpid())
    status.write_status(Host(str(tmp_path)), status.build_status(Pass(()), [], pid=os.getpid(), started_ticks=mine))
    for arguments in (["status"], ["status", "--json"]):
        found = imported_by(run_python, str(tmp_path), *arguments)
        assert not found & (HEAVY | {"dataclasses", "typing", "inspect", "tpuagent.config", "tpuagent.devices"})


def test_importing_the_daemon_loads_neither_its_log_nor_the_client_of_the_metadata_server(
    run_python: RunPython,
) -> None:
    said = run_python("-c", "import sys, tpuagent.agent; print(*sys.modules)")
    assert not set(said.stdout.split()) & {"structlog", "asyncio", "logging", "requests", "urllib3"}


@pytest.mark.parametrize("verb", ["bind --all --dry-run", "unbind --all --dry-run", "devices", "config"])
def test_a_configuration_of_comments_alone_needs_no_parser(machine: Machine, run_python: RunPython, verb: str) -> None:
    machine.add_function("v5p")
    machine.tree.put(configfiles.CONFIG_FILE, "# devices:\n#   mode: '0666'\n\n")
    machine.tree.put(f"{configfiles.DROP_IN_FOLDER}/10-site.yaml", "\n  # nothing yet\n")
    assert not imported_by(run_python, machine.root, *verb.split()) & HEAVY


def test_a_bind_imports_nothing_that_it_does_not_use(machine: Machine, run_python: RunPython) -> None:
    machine.add_function("v5p")
    # These take longer to import than the functions to bind.
    slow = {
        "argparse",
        "re",
        "enum",
        "json",
        "signal",
        "collections",
        "contextlib",
        "functools",
        "dataclasses",
        "typing",
        "tpuagent.status",
        "tpuagent.devices.holders",
        "tpuagent.devices.reasons",
        "grp",
    }
    assert not imported_by(run_python, machine.root, "bind", "--all", "--dry-run") & (HEAVY | slow)


def test_the_address_of_the_examples_is_the_first_one_the_machine_gives(machine: Machine) -> None:
    assert machine.add_function("v5p") == str(Address(0, 0, 4, 0))
