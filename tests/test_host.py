"""Are files replaced whole, attributes written once, and locks let go however their holder ends?"""

from __future__ import annotations

import errno
import grp
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tpuagent.errors import DeadlinePassed, ModuleUnavailable
from tpuagent.host import Host

LOCK = "/run/tpu-agent/devices.lock"


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path))


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """What fails in the middle of a write, as a full file system does, and can be had without being root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# Looking ----------------------------------------------------------------------------------------------------------


def test_what_is_gone_reads_as_none_and_not_as_an_error(host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("/missing", "/missing/too", "/file/below"):
        assert host.read(path) is None
        assert host.link(path) is None
        assert host.stat(path) is None
        assert host.names(path) == []
        assert not host.exists(path)
    assert host.names("/file") == []


def test_a_name_with_no_device_behind_it_reads_as_none(host: Host, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as nobody:
        nobody.bind(str(tmp_path / "s"))
    assert host.read("/s") is None


def test_what_is_there_and_cannot_be_read_is_an_error(host: Host, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        host.read("/folder")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        host.names("/loop")


def test_an_attribute_is_read_without_its_line_end(host: Host, tmp_path: Path) -> None:
    (tmp_path / "vendor").write_bytes(b"0x1ae0\n")
    assert host.read("/vendor") == "0x1ae0"


def test_bytes_that_are_no_text_do_not_stop_a_look(host: Host, tmp_path: Path) -> None:
    (tmp_path / "cmdline").write_bytes(b"python3\0\xff\xfe\n")
    assert host.read("/cmdline") == "python3\0\ufffd\ufffd"


def test_a_link_is_shown_as_it_is_even_when_it_leads_nowhere(host: Host, tmp_path: Path) -> None:
    (tmp_path / "driver").symlink_to("../../bus/pci/drivers/vfio-pci")
    (tmp_path / "plain").touch()
    assert host.link("/driver") == "../../bus/pci/drivers/vfio-pci"
    assert host.exists("/driver")
    assert host.link("/plain") is None
    assert host.stat("/driver", follow=True) is None


def test_names_come_in_one_order(host: Host, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        (tmp_path / name).touch()
    assert host.names("/") == ["a", "b", "c"]


def test_the_processes_are_those_of_the_machine() -> None:
    assert os.getpid() in set(Host().processes())


@pytest.mark.parametrize(("name", "number"), [("root", 0), ("0", 0), ("4242", 4242), ("no-such-group-here", None)])
def test_a_group_is_found_by_name_or_number(name: str, number: int | None) -> None:
    assert Host().group_id(name) == number


def test_a_group_is_found_by_the_name_that_the_machine_gives_it() -> None:
    known = next(entry for entry in grp.getgrall() if entry.gr_gid != 0)
    assert Host().group_id(known.gr_name) == known.gr_gid


# Attributes -------------------------------------------------------------------------------------------------------


def test_an_attribute_that_is_missing_is_not_made(host: Host, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        host.write_attribute("/unbind", "0000:00:04.0")
    assert os.listdir(tmp_path) == []


def test_an_attribute_gets_exactly_one_write(host: Host, tmp_path: Path) -> None:
    (tmp_path / "bind").touch()
    with file_size_limit(5):
        # The first write takes five bytes. A second one, for the rest, would raise EFBIG.
        host.write_attribute("/bind", "0000:00:04.0")
    assert (tmp_path / "bind").read_text() == "0000:"


def test_the_errno_of_a_write_comes_through_at_once() -> None:
    with pytest.raises(OSError, match="No space") as caught:
        Host().write_attribute("/dev/full", "x")
    assert caught.value.errno == errno.ENOSPC


def test_no_descriptor_stays_open_after_a_refused_write() -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="No space"):
        Host().write_attribute("/dev/full", "x")
    assert os.listdir("/proc/self/fd") == before


def test_access_is_set_to_exactly_the_mode_whatever_the_umask(host: Host, tmp_path: Path) -> None:
    (tmp_path / "node").touch(mode=0o600)
    old = os.umask(0o077)
    try:
        host.set_access("/node", 0o666, os.getuid(), os.getgid())
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "node").stat().st_mode) == 0o666


# Replacing --------------------------------------------------------------------------------------------------------


def test_a_reader_sees_the_old_text_or_the_new_and_never_a_part(host: Host) -> None:
    texts = ["a" * 300_000, "b" * 200_000]
    host.replace("/run/status.json", texts[0])
    over = threading.Event()

    def write() -> None:
        for number in range(40):
            host.replace("/run/status.json", texts[number % 2])
        over.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not over.is_set():
        seen.add(host.read("/run/status.json"))
    writer.join()
    assert seen <= set(texts)
    assert host.names("/run") == ["status.json"]


def test_a_replaced_file_can_be_read_by_all_whatever_the_umask(host: Host, tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        host.replace("/run/a.json", "{}")
        host.replace("/run/b.json", "{}", mode=0o600)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "run/a.json").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "run/b.json").stat().st_mode) == 0o600


def test_a_file_system_that_fills_up_in_mid_write_leaves_the_old_file_and_nothing_else(host: Host) -> None:
    host.replace("/run/devices.json", "old")
    with file_size_limit(10), pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
        host.replace("/run/devices.json", "new" * 10)
    assert host.read("/run/devices.json") == "old"
    assert host.names("/run") == ["devices.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_file_system_that_is_full_leaves_the_old_file_and_nothing_else(host: Host, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", tmp_path / "run"], check=False).returncode:
        pytest.skip("may not mount here")
    try:
        host.replace("/run/devices.json", "old")
        with pytest.raises(OSError, match="No space"):
            host.replace("/run/devices.json", "new" * 10_000)
        assert host.read("/run/devices.json") == "old"
        assert host.names("/run") == ["devices.json"]
    finally:
        subprocess.run(["umount", tmp_path / "run"], check=True)


def test_what_cannot_be_renamed_is_not_left_behind(host: Host, tmp_path: Path) -> None:
    (tmp_path / "run/status.json/in-the-way").mkdir(parents=True)
    with pytest.raises(OSError, match="irectory"):
        host.replace("/run/status.json", "{}")
    assert host.names("/run") == ["status.json"]


def test_a_text_that_has_no_bytes_leaves_nothing_behind(host: Host) -> None:
    host.replace("/run/status.json", "old")
    with pytest.raises(UnicodeEncodeError):
        host.replace("/run/status.json", "\ud800")
    assert host.names("/run") == ["status.json"]
    assert host.read("/run/status.json") == "old"


def test_removing_what_is_not_there_is_no_error(host: Host, tmp_path: Path) -> None:
    (tmp_path / "status.json").touch()
    host.remove("/status.json")
    host.remove("/status.json")
    assert os.listdir(tmp_path) == []


# Modules ----------------------------------------------------------------------------------------------------------


def test_a_module_that_cannot_be_had_is_an_error_that_names_it() -> None:
    with pytest.raises(ModuleUnavailable, match=r"^cannot load module no-such-module-anywhere: ") as caught:
        Host().load_module("no-such-module-anywhere")
    assert str(caught.value).isprintable()


# Locks ------------------------------------------------------------------------------------------------------------

_HOLD = f"""
import subprocess, sys
from tpuagent.host import Host
with Host(sys.argv[1]).lock({LOCK!r}, 5):
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    print("locked", flush=True)
    sys.stdin.readline()
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(host: Host) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lock, has started another one, and lets go after a line."""
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, host.root],
        cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
    ) as process:  # fmt: skip
        assert process.stdout
        assert process.stdout.readline() == "locked\n"
        yield process
        process.kill()


def test_a_lock_that_is_held_names_its_holder(host: Host, holder: subprocess.Popen[str]) -> None:
    with (
        pytest.raises(DeadlinePassed, match=rf"process {holder.pid} has held it .* ps -fp {holder.pid}$"),
        host.lock(LOCK, 0.05),
    ):
        pytest.fail("held by two")


def test_a_lock_is_had_as_soon_as_its_holder_lets_go(host: Host, holder: subprocess.Popen[str]) -> None:
    assert holder.stdin
    holder.stdin.write("\n")
    with host.lock(LOCK, 10):
        assert host.read(LOCK) == str(os.getpid())


def test_a_lock_is_dropped_when_its_holder_is_killed_though_a_child_of_it_lives(
    host: Host, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with host.lock(LOCK, 1):
        pass


def test_a_lock_keeps_two_threads_apart_as_well(host: Host) -> None:
    with host.lock(LOCK, 1), pytest.raises(DeadlinePassed, match=f"process {os.getpid()} "), host.lock(LOCK, 0.02):
        pytest.fail("held by two")


def test_a_lock_may_be_taken_again_and_keeps_nothing_open(host: Host) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with host.lock(LOCK, 1):
            pass
        with host.lock(LOCK, 1), pytest.raises(DeadlinePassed), host.lock(LOCK, 0):
            pass
    assert os.listdir("/proc/self/fd") == before


def test_nobody_else_may_open_the_lock(host: Host, tmp_path: Path) -> None:
    with host.lock(LOCK, 1):
        assert stat.S_IMODE((tmp_path / LOCK[1:]).stat().st_mode) == 0o600
