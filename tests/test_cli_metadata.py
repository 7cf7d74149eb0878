"""Do the commands about the metadata print the values themselves, and end with the code that tells a script why not?"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.fakes.machine import Machine
from tests.fakes.metadata_server import FakeMetadataServer
from tests.test_cli import somebody_else
from tpuagent import cli, configfiles
from tpuagent.host import Host

TPU_ENV = "TPU_ACCELERATOR_TYPE: 'v6e-8'\nTPU_WORKER_ID: '0'\n"
FILE = b'TPU_ACCELERATOR_TYPE="v6e-8"\nTPU_WORKER_ID="0"\n'
PATH = "/home/tpu-runtime/tpu-env"
ENVIRONMENT = "/etc/environment"
VERBS = ("metadata", "env", "environment")


class Command:
    """The command on one machine, called as a function; it remembers the bytes that were printed."""

    def __init__(self, machine: Machine, capture: pytest.CaptureFixture[bytes]) -> None:
        self.machine = machine
        self.out = b""
        self.err = ""
        self._capture = capture

    def __call__(self, *arguments: str) -> int:
        self._capture.readouterr()
        try:
            return cli.main(arguments, host=self.machine.host)
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            self.out, err = self._capture.readouterr()
            self.err = err.decode()

    @property
    def lines(self) -> list[str]:
        """The lines of the result."""
        return self.out.decode().splitlines()


@pytest.fixture
def tpuagent(machine: Machine, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    machine.tree.put("/usr/bin/python3", "", 0o755)
    return Command(machine, capsysbinary)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeMetadataServer]:
    """The server that the commands are sent to."""
    with FakeMetadataServer({"tpu-env": TPU_ENV}) as server:
        monkeypatch.setenv("GCE_METADATA_HOST", server.host)
        yield server


@pytest.fixture
def no_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A place where nobody listens, and nobody else can."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{held.getsockname()[1]}"
        monkeypatch.setenv("GCE_METADATA_HOST", host)
        yield host


# metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("v6e-8", b"v6e-8\n"),
        ("", b"\n"),
        ("a\nb\n", b"a\nb\n"),
        ("'quoted' \"twice\" $HOME `x` \\", b"'quoted' \"twice\" $HOME `x` \\\n"),
        ("caf\u00e9 \U0001f600", "caf\u00e9 \U0001f600\n".encode()),
        (" b'repr' ", b" b'repr' \n"),
        ("\t\x00\x1b", b"\t\x00\x1b\n"),
    ],
)
def test_the_value_itself_is_printed_and_a_line_end_where_it_has_none(
    tpuagent: Command, server: FakeMetadataServer, value: str, printed: bytes
) -> None:
    server.put("instance/attributes/key", value)
    assert tpuagent("metadata", "key") == 0
    assert (tpuagent.out, tpuagent.err) == (printed, "")


def test_a_value_that_is_no_text_is_printed_byte_by_byte(tpuagent: Command, server: FakeMetadataServer) -> None:
    server.fail("bytes")
    assert tpuagent("metadata", "key") == 0
    assert tpuagent.out == b"A: '1'\nB: '\xff\xfe'\n"


def test_a_key_may_be_deep_and_of_another_type(tpuagent: Command, server: FakeMetadataServer) -> None:
    server.put("instance/attributes/a b/c%d", "deep")
    for arguments, printed in (
        (["a b/c%d"], b"deep\n"),
        (["zone", "", "/"], b"projects/12/zones/us-east5-a\n"),
        (["id", "none", ""], b"6502082742571311568\n"),
        (["email", "none", "service-accounts/default"], b"robot@example.iam.gserviceaccount.com\n"),
        (["default/email", "none", "/service-accounts/"], b"robot@example.iam.gserviceaccount.com\n"),
    ):
        assert tpuagent("metadata", *arguments) == 0
        assert tpuagent.out == printed


def test_a_missing_key_without_a_default_has_a_code_of_its_own(tpuagent: Command, server: FakeMetadataServer) -> None:
    assert tpuagent("metadata", "nothing") == 20
    assert tpuagent.out == b""
    assert tpuagent.err == (
        "tpuagent: cannot find instance/attributes/nothing: the metadata server has no such key;"
        " list the keys there with: tpuagent metadata /\n"
    )
    assert len(server.seen) == 1


@pytest.mark.parametrize("default", ["none", "", "\udcff", "-"])
def test_a_missing_key_with_a_default_says_so_and_prints_the_default(
    tpuagent: Command, server: FakeMetadataServer, default: str
) -> None:
    assert server
    assert tpuagent("metadata", "nothing", default) == 0
    assert tpuagent.out == default.encode("utf-8", "surrogateescape") + b"\n"
    assert "has no such key" in tpuagent.err


def test_a_server_that_cannot_be_reached_is_a_third_code_whatever_the_default(
    tpuagent: Command, no_server: str
) -> None:
    for default in ([], ["none"]):
        assert tpuagent("metadata", "key", *default) == 21
        assert tpuagent.out == b""
        assert tpuagent.err == f"tpuagent: cannot reach the metadata server: {no_server}: connection refused\n"


@pytest.mark.parametrize(
    ("fault", "code"), [("html", 21), ("no-flavor", 21), ("503", 21), ("403", 21), ("redirect", 21), ("oversized", 22)]
)
def test_what_is_no_genuine_answer_is_never_printed(
    tpuagent: Command, server: FakeMetadataServer, fault: str, code: int
) -> None:
    server.fail(fault)
    assert tpuagent("metadata", "tpu-env", "default") == code
    assert tpuagent.out == b""
    assert tpuagent.err.startswith("tpuagent: cannot ")
    assert tpuagent.err.count("\n") == 1


def test_the_root_lists_the_keys(tpuagent: Command, server: FakeMetadataServer) -> None:
    server.put("instance/attributes/folder/key", "x")
    assert tpuagent("metadata", "/") == 0
    assert tpuagent.lines == ["folder/", "tpu-env"]
    assert tpuagent("metadata", "/", "none", "/") == 0
    assert {"attributes/", "id", "zone"} <= set(tpuagent.lines)
    assert tpuagent("metadata", "folder") == 0
    assert tpuagent.lines == ["key"]


def test_json_is_a_text_and_recursive_json_is_the_servers(tpuagent: Command, server: FakeMetadataServer) -> None:
    assert server
    assert tpuagent("metadata", "tpu-env", "--json") == 0
    assert json.loads(tpuagent.out) == TPU_ENV
    assert tpuagent("metadata", "nothing", "a\u00e9", "--json") == 0
    assert json.loads(tpuagent.out) == "a\u00e9"
    for more in ([], ["--json"]):
        assert tpuagent("metadata", "/", "--recursive", *more) == 0
        assert json.loads(tpuagent.out) == {"tpu-env": TPU_ENV}
    assert tpuagent("metadata", "nothing", "--recursive") == 20
    assert tpuagent("metadata", "nothing", "none", "--recursive", "--json") == 0
    assert json.loads(tpuagent.out) == "none"


@pytest.mark.parametrize("hostile", ["../../project/project-id", "x?recursive=true", "x#y", "a/../../id"])
def test_a_key_is_a_path_below_the_type_and_nothing_else(
    tpuagent: Command, server: FakeMetadataServer, hostile: str
) -> None:
    assert tpuagent("metadata", hostile) == (2 if ".." in hostile else 20)
    assert tpuagent.out == b""
    assert all(path.startswith("/computeMetadata/v1/instance/attributes/") for path in server.seen)


def test_what_is_typed_need_not_be_text(server: FakeMetadataServer, machine: Machine) -> None:
    assert server
    command: list[str | bytes] = [sys.executable, "-m", "tests.fakes", machine.root, "metadata", b"\xff", b"\xfe"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"\xfe\n")
    assert b"no such key" in done.stderr


# env --------------------------------------------------------------------------------------------------------------


def test_tpu_env_is_fetched_shown_and_found(tpuagent: Command, server: FakeMetadataServer) -> None:
    assert tpuagent("env", "path") == 0
    assert tpuagent.out == f"{PATH}\n".encode()
    for arguments in (["env"], ["env", "show"]):
        assert tpuagent(*arguments) == 20
        assert tpuagent.err == (
            f"tpuagent: cannot show {PATH}: there is no such file, or nothing in it; try: tpuagent env refresh\n"
        )
    assert server.seen == []
    assert tpuagent("env", "refresh") == 0
    assert tpuagent.lines == [f"{PATH} is written anew"]
    assert tpuagent("env", "refresh") == 0
    assert tpuagent.lines == [f"{PATH} is as the server says already"]
    for arguments in (["env"], ["env", "show"]):
        assert tpuagent(*arguments) == 0
        assert (tpuagent.out, tpuagent.err) == (FILE, "")


def test_the_path_is_the_configured_one(tpuagent: Command, server: FakeMetadataServer) -> None:
    assert server
    tpuagent.machine.tree.put(configfiles.CONFIG_FILE, "tpu_env:\n  path: /srv/tpu-env\n  aliases: true\n")
    assert tpuagent("env", "path") == 0
    assert tpuagent.out == b"/srv/tpu-env\n"
    assert tpuagent("env", "refresh") == 0
    assert tpuagent("env") == 0
    assert b'\nACCELERATOR_TYPE="v6e-8"\n' in tpuagent.out


def no_attribute(server: FakeMetadataServer) -> None:
    server.delete("instance/attributes/tpu-env")


def html(server: FakeMetadataServer) -> None:
    server.fail("html")


def a_page(server: FakeMetadataServer) -> None:
    server.put("instance/attributes/tpu-env", "<html><body>Please sign in</body></html>")


def not_utf8(server: FakeMetadataServer) -> None:
    server.fail("bytes")


@pytest.mark.parametrize(
    ("situation", "code", "told"),
    [
        (no_attribute, 20, "the attribute tpu-env is not defined"),
        (html, 21, "somebody else answers there"),
        (a_page, 22, "cannot refresh tpu-env: "),
        (not_utf8, 22, "line 2: it is not UTF-8"),
    ],
)
def test_a_refresh_that_finds_nothing_good_leaves_the_old_file_and_says_why(
    tpuagent: Command, server: FakeMetadataServer, situation: Callable[[FakeMetadataServer], None], code: int, told: str
) -> None:
    assert tpuagent("env", "refresh") == 0
    situation(server)
    assert tpuagent("env", "refresh") == code
    assert told in tpuagent.err
    assert tpuagent.out == b""
    assert tpuagent("env") == 0
    assert tpuagent.out == FILE


def test_a_refresh_without_a_server_is_the_third_code(tpuagent: Command, no_server: str) -> None:
    assert tpuagent("env", "refresh") == 21
    assert no_server in tpuagent.err
    assert not tpuagent.machine.tree.exists(PATH)


def test_a_file_that_cannot_be_written_is_an_error_and_no_bad_answer(
    tpuagent: Command, server: FakeMetadataServer
) -> None:
    assert server
    tpuagent.machine.tree.folder(PATH)
    assert tpuagent("env", "refresh") == 1
    assert tpuagent.err == f"tpuagent: cannot refresh tpu-env: cannot write {PATH}: is a directory\n"


def test_entries_that_cannot_be_written_are_named_and_the_rest_is_written(
    tpuagent: Command, server: FakeMetadataServer
) -> None:
    server.put("instance/attributes/tpu-env", f"{TPU_ENV}agent-worker-number: '1'\nPATH: '/evil'\n")
    assert tpuagent("env", "refresh") == 0
    assert [line.split(" is left out")[0] for line in tpuagent.err.splitlines()] == [
        "tpuagent: line 3 of tpu-env: agent-worker-number",
        "tpuagent: line 4 of tpu-env: PATH",
    ]
    assert tpuagent("env") == 0
    assert tpuagent.out == FILE


# environment ------------------------------------------------------------------------------------------------------


def test_a_dry_run_shows_the_difference_and_the_run_makes_it(tpuagent: Command) -> None:
    machine = tpuagent.machine
    machine.tree.put(ENVIRONMENT, "LANG=C.UTF-8\nGCS_RESOLVE_REFRESH_SECS=5\n")
    assert tpuagent("environment", "--dry-run") == 0
    assert tpuagent.lines[:4] == [f"--- {ENVIRONMENT}", f"+++ {ENVIRONMENT}", "@@ -1,2 +1,7 @@", " LANG=C.UTF-8"]
    added = [line[1:] for line in tpuagent.lines if line.startswith("+") and not line.startswith("+++")]
    assert added[0] == "CLOUDSDK_PYTHON=/usr/bin/python3"
    assert len(added) == 5
    assert "GCS_RESOLVE_REFRESH_SECS is '5' in the file and stays" in tpuagent.err
    assert machine.tree.text(ENVIRONMENT) == "LANG=C.UTF-8\nGCS_RESOLVE_REFRESH_SECS=5"
    assert not machine.tree.exists("/var/lib/tpu-agent/environment")
    assert tpuagent("environment") == 0
    assert tpuagent.lines == [f"{line} added" for line in added]
    assert (machine.tree.text(ENVIRONMENT) or "").splitlines()[2:] == added


def test_what_is_so_already_is_not_touched(tpuagent: Command) -> None:
    assert tpuagent("environment") == 0
    before = tpuagent.machine.host.stat(ENVIRONMENT)
    for arguments in (["environment"], ["environment", "--dry-run"]):
        assert tpuagent(*arguments) == 0
        assert (tpuagent.lines, tpuagent.err) == (["nothing to change"], "")
    assert tpuagent.machine.host.stat(ENVIRONMENT) == before


def test_a_variable_that_is_switched_off_is_taken_away_again(tpuagent: Command) -> None:
    assert tpuagent("environment") == 0
    tpuagent.machine.tree.put(
        configfiles.CONFIG_FILE, "environment:\n  CLOUDSDK_PYTHON: null\n  GCS_RESOLVE_REFRESH_SECS: 90\n  MORE: x\n"
    )
    assert tpuagent("environment") == 0
    assert tpuagent.lines == [
        "GCS_RESOLVE_REFRESH_SECS=90 instead of 60, which was the agent's own",
        "MORE=x added",
        "CLOUDSDK_PYTHON=/usr/bin/python3 taken away",
    ]


@pytest.mark.parametrize("arguments", [["environment"], ["environment", "--dry-run"]])
def test_a_file_that_cannot_be_read_is_one_line(tpuagent: Command, arguments: list[str]) -> None:
    tpuagent.machine.tree.folder(ENVIRONMENT)
    assert tpuagent(*arguments) == 1
    assert tpuagent.out == b""
    assert tpuagent.err.startswith("tpuagent: cannot ")
    assert tpuagent.err.endswith(f"{ENVIRONMENT}: is a directory\n")


# All of them ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("server")
def test_only_what_writes_needs_root(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    root = tempfile.mkdtemp()
    try:
        os.chmod(root, 0o755)
        host = Host(root)
        Path(root, "etc").mkdir()
        for arguments in (["metadata", "tpu-env"], ["environment", "--dry-run"], ["env", "path"]):
            assert cli.main(arguments, host=host) == 0  # imports what only root may read where Python is root's own
        with somebody_else():
            for arguments in (["metadata", "tpu-env"], ["environment", "--dry-run"], ["env", "path"]):
                assert cli.main(arguments, host=host) == 0
            for arguments in (["environment"], ["env", "refresh"]):
                capsysbinary.readouterr()
                assert cli.main(arguments, host=host) == 77
                assert b"sudo" in capsysbinary.readouterr().err
        assert os.listdir(root) == ["etc"]
        assert os.listdir(f"{root}/etc") == []
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize(
    "arguments", [["metadata"], ["metadata", "a", "b", "c", "d"], ["env", "fetch"], ["environment", "now"]]
)
def test_what_cannot_be_understood_is_a_usage_error(tpuagent: Command, arguments: list[str]) -> None:
    assert tpuagent(*arguments) == 2
    assert tpuagent.out == b""
    assert "usage: tpuagent " in tpuagent.err


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_teaches_what_each_command_does_and_how_it_ends(tpuagent: Command, verb: str) -> None:
    assert tpuagent(verb, "--help") == 0
    text = tpuagent.out.decode()
    assert all(f" {code} " in text.replace("\n", " ") for code in (0, 1, 2, 20, 21, 22, 77, 78))
    assert max(map(len, text.splitlines())) <= 120
    taught = {
        "metadata": ["KEY", "DEFAULT", "TYPE", "--recursive", "--json", "tpuagent metadata tpu-env"],
        "env": ["show", "refresh", "path"],
        "environment": ["--dry-run", "/etc/environment"],
    }
    assert [word for word in taught[verb] if word not in text] == []
    assert tpuagent("--help") == 0
    assert f"    {verb} " in tpuagent.out.decode()


@pytest.mark.parametrize("arguments", [["env"], ["env", "path"], ["env", "refresh"], ["environment", "--dry-run"]])
def test_a_bad_configuration_is_named(tpuagent: Command, arguments: list[str]) -> None:
    tpuagent.machine.tree.put(configfiles.CONFIG_FILE, "tpu_env:\n  path: tpu-env\n")
    assert tpuagent(*arguments) == 78
    assert "config.yaml: line 2: tpu_env.path: " in tpuagent.err
