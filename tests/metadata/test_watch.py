"""Does the worker keep the files true, through everything that a server does, and does it stop at once?"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.conftest import REPOSITORY
from tests.fakes.metadata_server import FakeMetadataServer
from tests.metadata.conftest import TPU_ENV
from tpuagent.host import Host
from tpuagent.metadata.answers import Backoff, Limits
from tpuagent.metadata.policy import EnvironmentPolicy, Policy, TpuEnvPolicy
from tpuagent.metadata.refresh import KEY
from tpuagent.metadata.seen import EnvironmentSeen, PlaceSeen, Seen, TpuEnvSeen
from tpuagent.metadata.server import MetadataServer
from tpuagent.metadata.watch import MetadataWatch, Pace
from tpuagent.values import replace

PATH = "/home/tpu-runtime/tpu-env"
PACE = Pace(hang_s=30, retry=Backoff(0.02, 0.1), absent=Backoff(0.05, 0.1))
QUICK = Limits(connect_s=0.5, read_s=0.5, total_s=1.0)
NO_LINES = EnvironmentPolicy(())
SOON_S = 5.0


class Watching:
    """A worker in its thread, and what it has told."""

    def __init__(self, host: Host, hosts: list[str], pace: Pace = PACE, *, expected: bool | None = True) -> None:
        self.host = host
        self.policy = Policy(TpuEnvPolicy(owner=str(os.getuid())), NO_LINES)
        self.told: SimpleQueue[Seen] = SimpleQueue()
        self.watch = MetadataWatch(
            host, self.policy, MetadataServer(hosts, QUICK), self.told.put, pace, expected=expected
        )
        self.thread = threading.Thread(target=self.watch.run)

    def until(self, *states: str) -> TpuEnvSeen:
        """The next event with one of these states; what comes before it is passed over."""
        end = time.monotonic() + SOON_S
        while True:
            seen = self.told.get(timeout=max(0.01, end - time.monotonic()))
            if isinstance(seen, TpuEnvSeen) and seen.state in states:
                return seen

    def until_place(self) -> PlaceSeen:
        """The next event that says what kind of host this is."""
        while not isinstance(seen := self.told.get(timeout=SOON_S), PlaceSeen):
            pass
        return seen

    def text(self) -> str:
        """The file."""
        return (self.host.read_bytes(PATH) or b"").decode()

    def stop(self) -> float:
        """Stop it; seconds until it has ended."""
        began = time.monotonic()
        self.watch.stop()
        self.thread.join(SOON_S)
        assert not self.thread.is_alive()
        return time.monotonic() - began


@contextmanager
def watching(host: Host, *hosts: str, pace: Pace = PACE, expected: bool | None = True) -> Iterator[Watching]:
    """A worker that is stopped in the end."""
    work = Watching(host, list(hosts), pace, expected=expected)
    work.thread.start()
    try:
        yield work
    finally:
        work.stop()


def test_a_change_is_in_the_file_within_a_second(server: FakeMetadataServer, host: Host) -> None:
    with watching(host, server.host) as work:
        assert work.until("written").accelerator_type == "v6e-8"
        for number in range(3):
            assert server.until_asked(3 + number)  # the second request asks what kind of host it is
            began = time.monotonic()
            server.put(KEY, f"TPU_WORKER_ID: '{number}'\n")
            assert work.until("written").worker_id == str(number)
            assert time.monotonic() - began < 1
            assert work.text() == f'TPU_WORKER_ID="{number}"\n'
    asked = [path for path in server.seen if KEY in path]
    assert all("last_etag=" in path for path in asked[1:])


@pytest.mark.parametrize("times", [1, 2])
def test_it_stops_at_once_while_the_server_holds_its_request(
    server: FakeMetadataServer, host: Host, times: int
) -> None:
    if times == 1:
        server.fail("silence")
    with watching(host, server.host) as work:
        assert server.until_asked(times)
        assert work.stop() < 0.3


def test_it_stops_at_once_while_it_waits_for_a_server(host: Host) -> None:
    with watching(host, "127.0.0.1:1", pace=replace(PACE, retry=Backoff(60, 60))) as work:
        assert not work.until("unreachable").settled
        assert work.stop() < 0.3


def test_a_deleted_key_is_said_and_not_applied_and_its_return_is_noticed(
    server: FakeMetadataServer, host: Host
) -> None:
    with watching(host, server.host) as work:
        work.until("written")
        server.delete(KEY)
        gone = work.until("deleted")
        assert gone.reason == f"the attribute tpu-env is no longer defined; {PATH} stays as it was"
        assert work.text() != ""
        server.put(KEY, "TPU_WORKER_ID: '7'\n")
        assert work.until("written").worker_id == "7"


def test_a_key_that_is_not_there_is_settled_at_once_and_looked_for_again(host: Host) -> None:
    with FakeMetadataServer() as server, watching(host, server.host) as work:
        absent = work.until("absent")
        assert (absent.settled, absent.reason) == (True, "the attribute tpu-env is not defined")
        assert server.until_asked(5)
        assert not host.exists(PATH)
        server.put(KEY, TPU_ENV)
        assert work.until("written").worker_id == "0"


def test_a_server_that_comes_late_and_goes_and_comes_back_is_followed(server: FakeMetadataServer, host: Host) -> None:
    server.fail("503", "html", "reset", "429")
    with watching(host, server.host) as work:
        assert work.until("unreachable", "written").state == "unreachable"
        assert work.until("written", "current").worker_id == "0"
        assert server.until_asked(7)
        server.fail("503", "503")
        server.put(KEY, "TPU_WORKER_ID: '1'\n")  # ends the held request
        assert work.until("written").worker_id == "1"
        away = work.until("unreachable")
        assert away.worker_id == "1"
        assert work.until("current").good


def test_a_bad_value_leaves_the_last_good_file_and_the_next_good_one_is_taken(
    server: FakeMetadataServer, host: Host
) -> None:
    with watching(host, server.host) as work:
        work.until("written")
        before = work.text()
        server.put(KEY, "A: 1\nA: 2\n")
        assert work.until("bad").reason == "A is on line 1 and again on line 2"
        assert work.text() == before
        server.fail("oversized")
        server.put(KEY, "<p>")
        while "longer than" not in work.until("bad").reason:
            pass
        server.put(KEY, "TPU_WORKER_ID: '9'\n")
        assert work.until("written").worker_id == "9"


def test_a_file_that_somebody_changed_is_made_right_when_the_server_answers_again(
    server: FakeMetadataServer, host: Host
) -> None:
    with watching(host, server.host, pace=replace(PACE, hang_s=1)) as work:
        work.until("written")
        before = work.text()
        Path(host.at(PATH)).write_text("")
        assert work.until("written").good
        assert work.text() == before


def test_a_server_that_does_not_hold_requests_is_not_asked_in_a_spin(host: Host) -> None:
    with FakeMetadataServer({"tpu-env": TPU_ENV}) as server:
        server.stopping.set()  # what should wait for a change gives up at once
        with watching(host, server.host, pace=replace(PACE, absent=Backoff(0.1, 0.2))) as work:
            work.until("written")
            assert not server.until_asked(12, limit_s=0.5)


def test_another_policy_is_followed_at_once(server: FakeMetadataServer, host: Host) -> None:
    with watching(host, server.host) as work:
        work.until("written")
        assert server.until_asked(2)
        elsewhere = replace(work.policy.tpu_env, path="/run/tpu-env", aliases=True)
        began = time.monotonic()
        work.watch.follow(Policy(elsewhere, EnvironmentPolicy((("GCS_X", "60"),))))
        assert work.until("written").path == "/run/tpu-env"
        assert time.monotonic() - began < 1
        assert b'WORKER_ID="0"' in (host.read_bytes("/run/tpu-env") or b"")
        if os.geteuid() == 0:
            assert host.read_bytes("/etc/environment") == b"GCS_X=60\n"


def test_a_host_that_is_none_of_googles_waits_for_nothing(server: FakeMetadataServer, host: Host) -> None:
    with watching(host, server.host, expected=None) as work:
        seen = work.until("not-google")
        assert seen.settled
        assert seen.reason.startswith("this is no Google host")
        first = work.told.empty()
        assert work.stop() < 0.3
    assert (first, server.seen) == (True, [])


def test_the_environment_comes_first_and_is_told(host: Host) -> None:
    work = Watching(host, ["127.0.0.1:1"])
    work.thread.start()
    seen = work.told.get(timeout=SOON_S)
    work.stop()
    assert isinstance(seen, EnvironmentSeen)
    assert (seen.written, seen.error) == (False, "")


_CHILD = """
import os, sys
from tpuagent import log
from tpuagent.host import Host
from tpuagent.metadata.answers import Backoff
from tpuagent.metadata.policy import EnvironmentPolicy, Policy, TpuEnvPolicy
from tpuagent.metadata.server import MetadataServer
from tpuagent.metadata.watch import MetadataWatch, Pace
log.configure(journal=False)
def tell(seen):
    print(getattr(seen, "state", "environment"), flush=True)
    if getattr(seen, "state", "") == "deleted":
        watch.stop()
policy = Policy(TpuEnvPolicy(owner=str(os.getuid())), EnvironmentPolicy(()))
pace = Pace(hang_s=1, retry=Backoff(0.02, 0.1), absent=Backoff(0.05, 0.1))
watch = MetadataWatch(Host(sys.argv[1]), policy, MetadataServer([sys.argv[2]]), tell, pace, expected=True)
watch.run()
"""


def test_one_line_is_logged_when_the_server_goes_and_one_when_it_comes_back(
    server: FakeMetadataServer, tmp_path: Path
) -> None:
    server.put(KEY, TPU_ENV + "UID: '1'\na.b: '2'\n")
    server.fail(*["503"] * 5)
    command = [sys.executable, "-c", _CHILD, str(tmp_path), server.host]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stderr
        states = []
        for line in child.stdout:
            states.append(line.strip())
            if line.strip() == "current":  # a held request has ended without a change
                server.delete(KEY)
        logged = child.stderr.read().splitlines()
    assert states.count("unreachable") == 5
    assert [line.split()[1] for line in logged] == [
        "metadata_server_lost",
        "metadata_server_found",
        "tpu_env_written",
        "tpu_env_entry_left_out",
        "tpu_env_entry_left_out",
        "tpu_env_deleted",
    ], logged


@pytest.mark.parametrize(
    "faults", [("none", "503"), ("none", "short", "503", "silence"), ("oversized", "503"), ("oversized", "none")]
)
def test_what_kind_of_host_it_is_is_asked_again_soon_and_whatever_tpu_env_is(
    server: FakeMetadataServer, host: Host, faults: tuple[str, ...]
) -> None:
    server.fail(*faults)
    with watching(host, server.host) as work:
        assert work.until_place() == PlaceSeen(gke=False)


@pytest.mark.parametrize(("attributes", "gke"), [({}, False), ({"kube-env": "x"}, True), ({"kube-labels": "x"}, True)])
def test_what_kind_of_host_it_is_is_told_once(host: Host, attributes: dict[str, str], gke: bool) -> None:
    with FakeMetadataServer({"tpu-env": "TPU_WORKER_ID: '0'\n", **attributes}) as server:
        with watching(host, server.host) as work:
            assert work.until_place() == PlaceSeen(gke)
            assert server.until_asked(3)
            server.put(KEY, "TPU_WORKER_ID: '1'\n")
            assert work.until("written").worker_id == "1"
        assert [path for path in server.seen if KEY not in path] == ["/computeMetadata/v1/instance/attributes/"]


def test_elsewhere_than_at_google_it_is_known_without_asking(host: Host) -> None:
    with watching(host, expected=False) as work:
        assert work.until_place() == PlaceSeen(gke=False)
