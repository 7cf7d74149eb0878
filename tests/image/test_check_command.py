"""What do `tpuagent check` and `check --image` print, and with which exit code do they end?"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

import pytest

from tests.fakes.machine import Machine
from tests.image.trees import RELEASE, install, put
from tests.test_cli import somebody_else
from tpuagent import cli, config
from tpuagent.commands.check import _tpu_env
from tpuagent.host import Host
from tpuagent.image.rows import NOT_CHECKED, OK, WARNING, WRONG
from tpuagent.image.tree import Tree

# An image ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def image(tmp_path: Path) -> str:
    root = str(tmp_path / "image")
    install(root)
    return root


def check(
    capsys: pytest.CaptureFixture[str], *arguments: str, host: Host | None = None
) -> tuple[int, list[dict[str, str]]]:
    code = cli.main(["check", "--json", *arguments], host=host)
    found: list[dict[str, str]] = json.loads(capsys.readouterr().out)
    return code, found


def test_a_good_image_is_right_and_what_only_runs_is_not_checked(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = check(capsys, "--image", image)
    assert [row for row in found if row["verdict"] not in (OK, NOT_CHECKED)] == []
    assert code == 0
    unchecked = {row["what"] for row in found if row["verdict"] == NOT_CHECKED}
    assert unchecked == {"kernel", "functions", "agent", "tpu-env"}


def test_an_image_whose_kernel_lacks_a_module_names_the_package(image: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(image, f"/lib/modules/{RELEASE}/modules.dep", "kernel/vfio_iommu_type1.ko:\n")
    put(image, "/etc/os-release", "NAME=Ubuntu\nID=ubuntu\n")
    code, found = check(capsys, "--image", image)
    (row,) = [row for row in found if row["verdict"] == WRONG]
    assert (code, row["mend"]) == (1, f"apt-get install linux-modules-extra-{RELEASE}")


def test_no_link_leads_out_of_an_image(image: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("the builder's own")
    os.symlink(str(outside), f"{image}/etc/out")
    os.symlink("../" * 20 + str(outside)[1:], f"{image}/etc/up")
    os.symlink("/usr/lib/os-release", f"{image}/etc/os-release")
    put(image, "/usr/lib/os-release", "ID=image")
    os.symlink("loop", f"{image}/etc/loop")
    tree = Tree(image)
    assert tree.read("/etc/out/secret") is None
    assert tree.read("/etc/up/secret") is None
    assert tree.read("/../../etc/out/secret") is None
    assert tree.names("/etc/out") == []
    assert tree.stat("/etc/out", follow=True) is None
    assert tree.read("/etc/os-release") == "ID=image"
    assert tree.link("/etc/os-release") == "/usr/lib/os-release"
    with pytest.raises(OSError, match="symbolic links"):
        tree.read("/etc/loop")


@pytest.mark.parametrize(
    ("root", "said"), [("/nowhere", "no root of an image"), ("/proc", "no root of an image"), ("", "ROOT is empty")]
)
def test_what_is_no_image_is_a_usage_error(root: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--image", root]) == 2
    assert said in capsys.readouterr().err


def test_a_closed_folder_is_said_to_be_closed(capsys: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryDirectory() as root, somebody_else():
        assert cli.main(["check", "--image", root]) == 2
    assert "it may not be read; try it with sudo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("document", "content", "verdict"),
    [
        (None, None, WARNING),
        (None, 'A="b"\n', OK),
        (None, "a b 'c\n", WRONG),
        ("current", 'A="b"\nB="\\$\\`"\n', OK),
        ("current", None, WRONG),
        ("current", 'A="b', WRONG),
        ("current", 'A="$(id)"\n', WRONG),
        ("bad", 'A="b"\n', WRONG),
        ("not-google", None, NOT_CHECKED),
    ],
)
def test_tpu_env_is_looked_at_and_the_agent_not_only_believed(
    good: Machine, document: str | None, content: str | None, verdict: str
) -> None:
    policy = config.load(Host(os.devnull), None)
    if content is not None:
        put(good.root, policy.metadata.tpu_env.path, content)
    said = {"tpu_env": {"state": document, "reason": ""}} if document else None
    (row,) = _tpu_env(good.host, policy, said)
    assert row.verdict == verdict
    assert (row.mend == "tpuagent env refresh") == (verdict in (WRONG, WARNING))


# The command ------------------------------------------------------------------------------------------------------


def test_functions_and_their_state_are_rows(good: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    address = good.add_function("v5p")
    good.add_function("v6e")
    _, found = check(capsys, host=good.host)
    by_name = {row["what"]: row for row in found}
    assert by_name["v5p: IOMMU groups"]["verdict"] == OK
    assert by_name[f"v5p: {address}"]["mend"] == f"tpuagent bind {address}"
    assert by_name["agent"]["verdict"] == WRONG
    assert cli.main(["bind", "--all"], host=good.host) == 0
    capsys.readouterr()
    _, found = check(capsys, host=good.host)
    by_name = {row["what"]: row for row in found}
    assert (by_name["v5p: functions"]["verdict"], by_name["v6e: functions"]["verdict"]) == (OK, OK)


def test_a_mistake_in_the_configuration_is_a_row_and_hides_no_other(
    good: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    put(good.root, "/etc/tpu-agent/config.yaml", "devices: {mode: 666}\n")
    code, found = check(capsys, host=good.host)
    assert code == 1
    assert (found[0]["what"], found[0]["verdict"]) == ("configuration", WRONG)
    assert len(found) > 20


def test_the_table_fits_80_columns_but_for_commands(good: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    good.add_function("v5p")
    for _ in range(3):
        put(good.root, "/etc/security/limits.d/99-a-site-with-a-long-name.conf", "* hard memlock 64\n")
    assert cli.main(["check"], host=good.host) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["VERDICT", "WHAT", "EXPECTED", "FOUND"]
    assert [line for line in lines if len(line) > 80 and not line.startswith("  mend: ")] == []
    assert lines[-1].startswith(f"{sum(line.startswith('wrong') for line in lines)} wrong, ")


@pytest.mark.parametrize(("columns", "one_line"), [(60, False), (80, False), (120, True)])
def test_the_table_is_as_wide_as_the_terminal(image: str, columns: int, one_line: bool) -> None:
    put(image, "/etc/security/limits.d/99-site.conf", "* - memlock 64\n")
    outer, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    argv = [sys.executable, "-m", "tpuagent", "check", "--image", image]
    with os.fdopen(outer, "rb", buffering=0) as terminal:
        running = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=inner)
        os.close(inner)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the other end any more
            while part := terminal.read(4096):
                shown += part
        assert running.wait() == 1
    (line,) = [line for line in shown.decode().splitlines() if "session users: memlock" in line]
    assert line.endswith("64 (/etc/security/limits.d/99-site.conf:1)") == one_line


def test_nothing_is_written(good: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    def snapshot() -> dict[str, float]:
        files = Path(good.root).rglob("*")
        return {str(path): path.lstat().st_mtime for path in files if "/.kernel" not in str(path)}

    good.add_function("v5p")
    before = snapshot()
    check(capsys, host=good.host)
    assert snapshot() == before
