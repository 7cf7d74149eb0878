"""What becomes of the files of tpu-env, whatever the server says and whatever the disk does?"""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from tests.conftest import RunPython
from tests.fakes.metadata_server import FakeMetadataServer
from tests.metadata.conftest import TPU_ENV
from tpuagent.errors import NoSuchKey, ServerUnreachable
from tpuagent.host import Host
from tpuagent.metadata.answers import Found, NotDefined
from tpuagent.metadata.policy import TpuEnvPolicy
from tpuagent.metadata.refresh import apply, is_google, look_up, read_file, refresh
from tpuagent.metadata.server import MetadataServer
from tpuagent.values import replace

PATH = "/home/tpu-runtime/tpu-env"
GOOD = Found(TPU_ENV.encode(), "1")
TEXT = b'TPU_ACCELERATOR_TYPE="v6e-8"\nTPU_WORKER_ID="0"\n'


def leftovers(host: Host) -> list[str]:
    """What is in the folder beside the file itself."""
    return [name for name in host.names(os.path.dirname(PATH)) if name != "tpu-env"]


def test_the_file_is_made_with_its_folder_and_not_touched_when_it_is_right(
    server: FakeMetadataServer, host: Host, policy: TpuEnvPolicy
) -> None:
    client = MetadataServer([server.host])
    seen = refresh(host, client, policy)
    assert (seen.state, seen.path, seen.accelerator_type, seen.worker_id) == ("written", PATH, "v6e-8", "0")
    assert read_file(host, policy) == TEXT
    first = host.stat(PATH)
    assert first
    assert stat.filemode(first.st_mode) == "-rw-r--r--"
    assert refresh(host, client, policy).state == "current"
    assert host.stat(PATH) == first
    assert leftovers(host) == []


def test_owner_and_mode_are_given_and_given_back(host: Host, policy: TpuEnvPolicy) -> None:
    policy = replace(policy, mode=0o640)
    assert apply(host, policy, GOOD, None).state == "written"
    os.chmod(host.at(PATH), 0o600)
    assert apply(host, policy, GOOD, None).state == "written"
    found = host.stat(PATH)
    assert found
    assert stat.S_IMODE(found.st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_file_and_folder_belong_to_the_owner(host: Host) -> None:
    seen = apply(host, TpuEnvPolicy(owner="nobody"), GOOD, None)
    for path in (PATH, os.path.dirname(PATH)):
        found = host.stat(path)
        assert found
        assert found.st_uid == pwd.getpwnam("nobody").pw_uid
    assert seen.reason == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_owner_that_does_not_exist_is_said_and_the_file_is_roots(host: Host) -> None:
    seen = apply(host, TpuEnvPolicy(owner="tpu-runtime-user"), GOOD, None)
    assert (seen.state, seen.reason) == (
        "written",
        "the file is root's: there is no user tpu-runtime-user (tpu_env.owner)",
    )
    assert apply(host, TpuEnvPolicy(owner="tpu-runtime-user"), GOOD, None).state == "current"


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (NotDefined(), "absent"),
        (Found(b"", None), "bad"),
        (Found(b"<html>sign in</html>", None), "bad"),
        (Found(b"A: 1\nA: 2\n", None), "bad"),
        (Found(b"A: '\xff'\n", None), "bad"),
        (Found(b"UID: '1'\n", None), "bad"),
    ],
)
def test_the_last_good_file_stays_when_there_is_nothing_better(
    host: Host, policy: TpuEnvPolicy, answer: Found | NotDefined, state: str
) -> None:
    assert apply(host, policy, answer, None).state == state
    assert not host.exists(PATH)
    good = apply(host, policy, GOOD, None)
    seen = apply(host, policy, answer, good.content)
    assert seen.state == {"absent": "deleted"}.get(state, state)
    assert seen.worker_id == "0"
    assert read_file(host, policy) == TEXT


def test_a_file_of_an_earlier_boot_is_kept_and_said(host: Host, policy: TpuEnvPolicy) -> None:
    apply(host, policy, GOOD, None)
    seen = apply(host, policy, NotDefined(), None)
    assert seen.reason == f"the attribute tpu-env is not defined; {PATH} stays as it was"
    assert (seen.accelerator_type, seen.settled, seen.good) == (None, True, False)


def test_an_empty_file_counts_as_none_and_is_written(host: Host, policy: TpuEnvPolicy) -> None:
    os.makedirs(os.path.dirname(host.at(PATH)))
    Path(host.at(PATH)).touch()
    assert read_file(host, policy) is None
    assert apply(host, policy, GOOD, None).state == "written"
    assert read_file(host, policy) == TEXT


def test_a_link_in_a_folder_of_somebody_elses_is_replaced_and_not_followed(host: Host, policy: TpuEnvPolicy) -> None:
    os.makedirs(os.path.dirname(host.at(PATH)))
    victim = Path(host.at("/shadow"))
    victim.write_bytes(TEXT)
    os.chmod(victim, 0o600)
    os.symlink(victim, host.at(PATH))
    os.symlink(victim, host.at(f"{PATH}.{os.getpid()}.new"))
    assert apply(host, policy, Found(b"A: '1'\n", None), None).state == "written"
    assert victim.read_bytes() == TEXT
    assert host.link(PATH) is None


_FULL = """
import resource, sys
from tpuagent.host import Host
from tpuagent.metadata.answers import Found
from tpuagent.metadata.policy import TpuEnvPolicy
from tpuagent.metadata.refresh import apply
host, policy = Host(sys.argv[1]), TpuEnvPolicy(owner=sys.argv[2])
print(apply(host, policy, Found(b"A: 'old'\\n"), None).state)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
seen = apply(host, policy, Found(b"A: '" + b"x" * 5000 + b"'\\n"), None)
print(seen.state, seen.reason)
print(host.read_bytes(policy.path), host.names("/home/tpu-runtime"))
"""


def test_a_disk_that_is_full_in_the_middle_leaves_the_old_file(tmp_path: Path, run_python: RunPython) -> None:
    """A limit on the size of files stops a write half-way just as a full disk does."""
    done = run_python("-c", _FULL, str(tmp_path), str(os.getuid()))
    assert done.stdout.splitlines() == [
        "written",
        f"failed cannot write {PATH}: file too large",
        "b'A=\"old\"\\n' ['tpu-env']",
    ], done.stderr


def test_a_folder_in_the_place_of_the_file_is_a_failure_that_is_said(host: Host, policy: TpuEnvPolicy) -> None:
    os.makedirs(host.at(f"{PATH}/folder"))
    seen = apply(host, policy, GOOD, None)
    assert (seen.state, seen.worker_id) == ("failed", "0")
    assert "is a directory" in seen.reason
    assert leftovers(host) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="the second file is root's")
def test_the_second_output_and_the_aliases_are_there_when_they_are_asked_for(host: Host, policy: TpuEnvPolicy) -> None:
    policy = replace(policy, second_path="/etc/tpu/tpu-env", aliases=True)
    assert apply(host, policy, Found(b"WORKER_ID: 'it''s'\n"), None).state == "written"
    assert read_file(host, policy) == b'WORKER_ID="it\'s"\nTPU_WORKER_ID="it\'s"\n'
    assert host.read_bytes("/etc/tpu/tpu-env") == b"WORKER_ID: 'it''s'\nTPU_WORKER_ID: 'it''s'\n"
    assert apply(host, policy, Found(b"WORKER_ID: 'it''s'\n"), None).state == "current"
    host.remove("/etc/tpu/tpu-env")
    assert apply(host, policy, Found(b"WORKER_ID: 'it''s'\n"), None).state == "written"


def test_an_answer_that_is_too_long_is_bad_and_a_server_that_is_away_is_an_error(
    server: FakeMetadataServer, host: Host, policy: TpuEnvPolicy
) -> None:
    server.fail("oversized")
    assert refresh(host, MetadataServer([server.host]), policy).state == "bad"
    with pytest.raises(ServerUnreachable):
        refresh(host, MetadataServer(["127.0.0.1:1"]), policy)


@pytest.mark.parametrize(
    ("name", "text", "google"),
    [
        ("product_name", "Google Compute Engine\n", True),
        ("product_name", "Google\n", True),
        ("sys_vendor", "Google\n", True),
        ("product_name", "Standard PC (i440FX + PIIX, 1996)\n", False),
        ("chassis_vendor", "Google\n", False),
    ],
)
def test_the_firmware_says_whether_a_server_is_to_be_expected(host: Host, name: str, text: str, google: bool) -> None:
    assert not is_google(host)
    folder = Path(host.at("/sys/class/dmi/id"))
    folder.mkdir(parents=True)
    (folder / name).write_text(text)
    assert is_google(host) is google


# Look-up ----------------------------------------------------------------------------------------------------------


def test_a_key_is_looked_up_byte_by_byte(server: FakeMetadataServer) -> None:
    client = MetadataServer([server.host])
    server.put("instance/attributes/a key", "a value \n")
    assert look_up(client, "a key") == b"a value \n"
    assert look_up(client, "id", "") == b"6502082742571311568"
    assert look_up(client, "default/email", "service-accounts") == b"robot@example.iam.gserviceaccount.com"
    assert look_up(client, "/") == b"a key\ntpu-env\n"
    assert look_up(client, "service-accounts", "", recursive=True).startswith(b'{"default": {"aliases": ["default"]')
    assert look_up(client, "", "attributes", recursive=True).startswith(b'{"tpu-env": ')


def test_a_key_that_is_not_there_is_told_from_a_server_that_is_not_there(server: FakeMetadataServer) -> None:
    with pytest.raises(NoSuchKey, match="cannot find instance/attributes/nothing") as missing:
        look_up(MetadataServer([server.host]), "nothing")
    with pytest.raises(ServerUnreachable) as away:
        look_up(MetadataServer(["127.0.0.1:1"]), "nothing")
    assert missing.value.exit_code != away.value.exit_code
