"""Does an access that the kernel never answers cost its deadline and nothing else?"""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tpuagent import deadline
from tpuagent.deadline import PatientChild
from tpuagent.errors import DeadlinePassed, TpuAgentError
from tpuagent.host import Host

LIMIT_S = 10.0


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path))


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[Path]:
    """An attribute that never answers: a pipe that nobody reads. Whoever waits at it is let go at the end."""
    pipe = tmp_path / "unbind"
    os.mkfifo(pipe)
    before = children()
    yield pipe
    for pid in children() - before:
        let_go(pipe, pid)
    deadline.reap()
    assert children() <= before, "a child was never waited for"


def let_go(pipe: Path, pid: int) -> None:
    """Let the child that waits at the pipe, or is still on its way there, go on to its end."""
    while not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
        # A writer finds a reader, and a reader the end.
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))
        time.sleep(0.001)


def children(pid: int | None = None) -> set[int]:
    """The children of this process (or of another one), the ended ones too."""
    host, found = Host(), set()
    for other in host.processes():
        fields = (host.read(f"/proc/{other}/stat") or ") ? 0").rpartition(")")[2].split()
        if int(fields[1]) == (pid or os.getpid()):
            found.add(other)
    return found


def new_child(before: set[int], pid: int | None = None) -> int:
    """The child that was not there before, as soon as there is one."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if found := children(pid) - before:
            return found.pop()
    raise TimeoutError("no child was started")


# Without trouble --------------------------------------------------------------------------------------------------


def test_accesses_are_made_in_order_and_answer_as_the_host_does(host: Host, tmp_path: Path) -> None:
    (tmp_path / "driver_override").write_text("(null)\n")
    with PatientChild(host, LIMIT_S) as child:
        child.write("/driver_override", "vfio-pci")
        assert host.read("/driver_override") == "vfio-pci"
        child.write("/driver_override", "old-driver")
        assert host.read("/driver_override") == "old-driver"


def test_a_chain_that_was_announced_is_made_once_in_order_and_each_write_has_its_own_answer(
    host: Host, tmp_path: Path
) -> None:
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).touch()
    with PatientChild(host, LIMIT_S) as child:
        child.announce(([("/a", "1"), ("/missing", "2"), ("/b", "3")], None))
        child.announce(([("/c", "4"), ("/d", "5")], None))
        child.write("/d", "5")
        assert [host.read(f"/{name}") for name in "abcd"] == ["1", "", "4", "5"]
        child.write("/a", "1")
        with pytest.raises(FileNotFoundError):
            child.write("/missing", "2")
        child.write("/b", "3")  # what stood behind the failure is made now, since it is asked for all the same
        assert host.read("/b") == "3"


def test_a_node_is_opened_when_all_writes_of_its_chain_are_made(host: Host, tmp_path: Path) -> None:
    for name in ("bind", "one", "two"):
        (tmp_path / name).touch(mode=0o600)
    owner = os.getuid(), os.getgid()
    with PatientChild(host, LIMIT_S) as child:
        child.announce(([("/bind", "1")], ("/none", 0o666, *owner)), ([("/bind", "2")], ("/one", 0o664, *owner)))
        child.announce(([("/bind", "3"), ("/missing", "4")], ("/two", 0o666, *owner)))
        child.write("/bind", "5")  # which is made after all that
        modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("one", "two")]
        assert modes == [0o664, 0o600]


def test_what_was_announced_behind_a_write_that_waits_is_not_made_by_the_child_left_behind(
    host: Host, stuck: Path, tmp_path: Path
) -> None:
    (tmp_path / "bind").touch()
    before = children()
    with PatientChild(host, 0.05) as child:
        child.announce(([(f"/{stuck.name}", "x")], None), ([("/bind", "y")], None))
        with pytest.raises(DeadlinePassed):
            child.write(f"/{stuck.name}", "x")
    (left,) = children() - before
    with open(stuck, encoding="utf-8") as end:
        assert end.read() == "x"
    os.waitid(os.P_PID, left, os.WEXITED | os.WNOWAIT)
    assert host.read("/bind") == ""


def test_one_child_serves_all_accesses_and_is_gone_afterwards(host: Host, tmp_path: Path) -> None:
    (tmp_path / "bind").touch()
    before, descriptors = children(), os.listdir("/proc/self/fd")
    with PatientChild(host, LIMIT_S) as child:
        assert children() == before, "started before it is needed"
        for _ in range(3):
            child.write("/bind", "x")
        assert len(children() - before) == 1
    assert children() == before
    assert os.listdir("/proc/self/fd") == descriptors


def test_a_refusal_carries_the_errno_and_the_next_access_works(host: Host, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "full").symlink_to("/dev/full")
    (tmp_path / "bind").touch()
    with PatientChild(host, LIMIT_S) as child:
        for path, number in (("/missing", errno.ENOENT), ("/folder", errno.EISDIR), ("/full", errno.ENOSPC)):
            with pytest.raises(OSError, match=os.strerror(number)) as caught:
                child.write(path, "x")
            assert caught.value.errno == number
        child.write("/bind", "x")


def test_the_child_has_no_terminal_and_none_of_our_files_and_takes_no_signal(host: Host, tmp_path: Path) -> None:
    (tmp_path / "bind").touch()
    before = children()
    with open(tmp_path / "ours", "w", encoding="utf-8") as ours, PatientChild(host, LIMIT_S) as child:
        child.write("/bind", "x")
        pid = new_child(before)
        assert os.getsid(pid) == pid
        opened = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
        assert ours.name not in opened
        assert sorted(name.partition(":")[0] for name in opened) == ["/dev/null"] * 3 + ["pipe"] * 2
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        child.write("/bind", "x")
        assert children() - before == {pid}


# An access that is never answered ---------------------------------------------------------------------------------


def test_an_access_that_is_never_answered_costs_its_deadline(host: Host, stuck: Path) -> None:
    with PatientChild(host, 0.05) as child:
        began = time.monotonic()
        with pytest.raises(DeadlinePassed, match=f"/{stuck.name}: .* within 0.05 s"):
            child.write("/unbind", "x")
        assert 0.05 <= time.monotonic() - began < LIMIT_S


def test_the_next_access_works(host: Host, stuck: Path, tmp_path: Path) -> None:
    (tmp_path / "bind").touch()
    with PatientChild(host, 0.05) as child, pytest.raises(DeadlinePassed):
        child.write(f"/{stuck.name}", "x")
    with PatientChild(host, LIMIT_S) as child:
        child.write("/bind", "y")
    assert host.read("/bind") == "y"


def test_the_same_child_object_goes_on_after_a_deadline(host: Host, stuck: Path, tmp_path: Path) -> None:
    (tmp_path / "bind").touch()
    with PatientChild(host, 0.5) as child:
        with pytest.raises(DeadlinePassed):
            child.write(f"/{stuck.name}", "x")
        child.write("/bind", "y")
    assert host.read("/bind") == "y"


def test_the_waiting_child_holds_no_lock_of_ours(host: Host, stuck: Path) -> None:
    with host.lock("/lock", LIMIT_S), PatientChild(host, 0.05) as child, pytest.raises(DeadlinePassed):
        child.write(f"/{stuck.name}", "x")
    with host.lock("/lock", LIMIT_S):  # as soon as the child has closed what it inherited; it waits for ever
        pass


def test_a_child_that_was_left_behind_is_collected_when_it_ends(host: Host, stuck: Path) -> None:
    before = children()
    with PatientChild(host, 0.05) as child, pytest.raises(DeadlinePassed):
        child.write(f"/{stuck.name}", "x")
    (left,) = children() - before
    let_go(stuck, left)
    with PatientChild(host, LIMIT_S):
        assert left not in children()


_WAIT = """
import sys
from tpuagent.deadline import PatientChild
from tpuagent.errors import DeadlinePassed
from tpuagent.host import Host
try:
    with PatientChild(Host(sys.argv[1]), float(sys.argv[2])) as child:
        child.write("/unbind", "x")
except DeadlinePassed:
    print("left behind")
"""


def test_the_program_can_end_while_its_child_waits(host: Host, stuck: Path) -> None:
    # run() returns when the pipes are closed: the child holds neither standard output nor standard error.
    done = subprocess.run(
        [sys.executable, "-c", _WAIT, host.root, "0.05"],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("left behind\n", "")
    with open(stuck, encoding="utf-8") as end:
        assert end.read() == "x", "the access is still made when the kernel lets it"


# A child that dies ------------------------------------------------------------------------------------------------


def test_an_access_whose_child_is_killed_is_not_taken_for_done(host: Host, stuck: Path, tmp_path: Path) -> None:
    (tmp_path / "bind").touch()
    before = children()
    killer = threading.Thread(target=lambda: os.kill(new_child(before), signal.SIGKILL))
    killer.start()
    with PatientChild(host, LIMIT_S) as child:
        with pytest.raises((OSError, TpuAgentError)):
            child.write(f"/{stuck.name}", "x")
        killer.join()
        child.write("/bind", "y")
    assert host.read("/bind") == "y", "the next access starts another child"


def test_an_access_after_the_child_was_killed_is_made_by_another_one(host: Host, tmp_path: Path) -> None:
    (tmp_path / "bind").touch()
    before = children()
    with PatientChild(host, LIMIT_S) as child:
        child.write("/bind", "1")
        os.kill(pid := new_child(before), signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        try:
            child.write("/bind", "2")
        except TpuAgentError:
            child.write("/bind", "2")
    assert (tmp_path / "bind").read_text() == "2"
    deadline.reap()
    assert children() == before
