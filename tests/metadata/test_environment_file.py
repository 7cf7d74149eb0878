"""What becomes of the file /etc/environment, of its links, its owner and its neighbours?"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tpuagent.host import Host
from tpuagent.metadata.environment_file import OURS, is_interpreter, keep_environment, preview_environment
from tpuagent.metadata.policy import EnvironmentPolicy

FILE = "/etc/environment"
POLICY = EnvironmentPolicy((("GCS_X", "60"), ("GCS_Y", "a b")))

# Whose file a new one is: root's.
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a new /etc/environment is root's")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A machine with an interpreter and an /etc."""
    for folder in ("etc", "usr/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "usr/bin/python3.12").touch(mode=0o755)
    (tmp_path / "usr/bin/python3").symlink_to("python3.12")
    return Host(str(tmp_path))


def test_a_missing_file_is_made_and_a_right_one_is_not_touched(host: Host) -> None:
    seen = keep_environment(host, POLICY)
    assert (seen.written, seen.error) == (True, "")
    assert host.read_bytes(FILE) == b'GCS_X=60\nGCS_Y="a b"\n'
    before = host.stat(FILE)
    again = keep_environment(host, POLICY)
    assert (again.written, again.error) == (False, "")
    assert host.stat(FILE) == before
    assert host.names("/etc") == ["environment"]


@pytest.mark.parametrize("target", ["/etc/default/environment", "default/environment", "../etc/default/environment"])
def test_a_link_is_followed_inside_the_machine_and_mode_and_owner_stay(host: Host, target: str) -> None:
    os.makedirs(host.at("/etc/default"))
    real = Path(host.at("/etc/default/environment"))
    real.write_bytes(b"A=\xe9\r\n")
    os.chmod(real, 0o640)
    os.chown(real, 0, 4)
    os.symlink(target, host.at(FILE))
    assert keep_environment(host, POLICY).written
    assert host.link(FILE) == target
    found = os.stat(real)
    assert (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) == (0o640, 0, 4)
    assert real.read_bytes() == b'A=\xe9\r\nGCS_X=60\nGCS_Y="a b"\n'


def test_links_that_lead_nowhere_are_an_error_that_is_said(host: Host) -> None:
    os.symlink(FILE, host.at(FILE))
    assert keep_environment(host, POLICY).error == "cannot edit /etc/environment: too many levels of symbolic links"


def test_the_agents_own_lines_are_remembered_and_follow_the_configuration(host: Host) -> None:
    Path(host.at(FILE)).write_text("GCS_Y=own\n")
    keep_environment(host, POLICY)
    assert host.read_bytes(OURS) == b"GCS_X=60\n"
    keep_environment(host, EnvironmentPolicy((("GCS_X", "90"), ("GCS_Y", "c"))))
    assert host.read_bytes(FILE) == b"GCS_Y=own\nGCS_X=90\n"
    keep_environment(host, EnvironmentPolicy(()))
    assert host.read_bytes(FILE) == b"GCS_Y=own\n"
    assert not host.exists(OURS)


def test_a_preview_changes_nothing_and_says_exactly_what_would_be_done(host: Host) -> None:
    Path(host.at(FILE)).write_text("A=1\n")
    edit, shown = preview_environment(host, POLICY)
    assert host.read_bytes(FILE) == b"A=1\n"
    assert not host.exists(OURS)
    assert shown.splitlines()[2:] == ["@@ -1 +1,3 @@", " A=1", "+GCS_X=60", '+GCS_Y="a b"']
    assert edit.changes == ("GCS_X=60 added", 'GCS_Y="a b" added')
    assert keep_environment(host, POLICY).edit == edit


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("/usr/bin/python3", True),
        ("/usr/bin/python3.12", True),
        ("python3", True),
        ("/usr/bin", False),
        ("/usr/bin/python2", False),
        ("python2", False),
        ("bin/python3", False),
        ("", False),
        ("/etc/environment", False),
    ],
)
def test_an_interpreter_is_a_program_that_is_there(host: Host, value: str, good: bool) -> None:
    Path(host.at(FILE)).touch()
    assert is_interpreter(host, value) is good


def test_the_documented_default_finds_its_interpreter_through_an_absolute_link(host: Host) -> None:
    os.unlink(host.at("/usr/bin/python3"))
    os.symlink("/usr/bin/python3.12", host.at("/usr/bin/python3"))
    keep_environment(host, EnvironmentPolicy())
    assert (host.read_bytes(FILE) or b"").startswith(b"CLOUDSDK_PYTHON=/usr/bin/python3\nGCS_RESOLVE_REFRESH_SECS=60\n")
