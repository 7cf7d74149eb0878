"""Which answers does the client believe, how long does it wait, and how does it stop?"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import RunPython
from tests.fakes.metadata_server import FakeMetadataServer
from tests.metadata.conftest import TPU_ENV
from tpuagent.errors import BadAnswer, ServerUnreachable
from tpuagent.metadata.answers import Backoff, Found, Interrupted, IsFolder, Limits, NotDefined, next_delay_s
from tpuagent.metadata.refresh import KEY, open_server
from tpuagent.metadata.server import MetadataServer

QUICK = Limits(connect_s=0.3, read_s=0.3, total_s=0.6, size=100_000)
HANG = {"wait_for_change": "true", "timeout_sec": "30"}


@pytest.fixture
def client(server: FakeMetadataServer) -> MetadataServer:
    """A client that waits for little."""
    return MetadataServer([server.host], QUICK)


def took_s(work: Callable[[], object]) -> float:
    """How long something takes."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def no_requests_left() -> bool:
    """Whether the threads of all exchanges have ended."""
    left = [thread for thread in threading.enumerate() if thread.name == "metadata request"]
    for thread in left:
        thread.join(2)
    return not any(thread.is_alive() for thread in left)


# Answers ----------------------------------------------------------------------------------------------------------


def test_a_value_comes_with_its_etag_and_an_empty_one_is_a_value(
    server: FakeMetadataServer, client: MetadataServer
) -> None:
    found = client.get(KEY)
    assert isinstance(found, Found)
    assert (found.body, bool(found.etag)) == (TPU_ENV.encode(), True)
    server.put("instance/attributes/empty", "")
    empty = client.get("instance/attributes/empty")
    assert isinstance(empty, Found)
    assert empty.body == b""


def test_a_missing_key_is_an_answer_and_a_folder_is_told_from_a_redirect(client: MetadataServer) -> None:
    assert client.get("instance/attributes/nothing") == NotDefined()
    assert client.get("instance/attributes") == IsFolder()
    assert client.get("instance/attributes/nothing?recursive=true#x") == NotDefined()


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("503", "it answers 503 Service Unavailable"),
        ("429", "it answers 429 Too Many Requests"),
        ("500", "it answers 500"),
        ("403", "it answers 403"),
        ("302", "it answers 302"),
        ("html", "somebody else answers there (200, and no Metadata-Flavor header)"),
        ("genuine-html", "somebody else answers there (with an HTML page)"),
        ("no-flavor", "somebody else answers there (200, and no Metadata-Flavor header)"),
        ("redirect", "it answers 302"),
        ("short", "the answer "),
        ("reset", "it hangs up without an answer"),
        ("garbage", "does not speak HTTP"),
        ("silence", "no answer in time"),
        ("drip", "no whole answer in 0.6 s"),
        ("drip-headers", "no whole answer in 0.6 s"),
    ],
)
def test_what_is_no_genuine_and_whole_answer_is_no_answer_within_the_limits(
    server: FakeMetadataServer, client: MetadataServer, fault: str, why: str
) -> None:
    server.drip_s = 0.1
    server.fail(fault)
    began = time.monotonic()
    with pytest.raises(ServerUnreachable) as caught:
        client.get(KEY)
    assert why in caught.value.why
    assert time.monotonic() - began < QUICK.total_s + 0.5
    assert no_requests_left()
    assert isinstance(client.get(KEY), Found)  # a failure is not remembered


def test_an_answer_without_end_is_dropped_at_the_size_limit(server: FakeMetadataServer, client: MetadataServer) -> None:
    server.fail("oversized")
    with pytest.raises(BadAnswer, match="longer than 100000 bytes"):
        client.get(KEY)
    assert no_requests_left()


def test_bytes_that_are_no_text_are_named_with_their_line(server: FakeMetadataServer, client: MetadataServer) -> None:
    server.fail("bytes")
    answer = client.get(KEY)
    assert isinstance(answer, Found)
    with pytest.raises(BadAnswer, match="cannot use tpu-env: line 2: it is not UTF-8"):
        answer.text("tpu-env")


# Which host -------------------------------------------------------------------------------------------------------


def test_the_second_host_is_asked_when_the_first_is_not_the_server(server: FakeMetadataServer) -> None:
    with FakeMetadataServer() as other:
        other.fail("html")
        assert isinstance(MetadataServer([other.host, server.host]).get(KEY), Found)
        assert isinstance(MetadataServer(["127.0.0.1:1", server.host]).get(KEY), Found)
        assert len(other.seen) == 1
        assert MetadataServer([other.host, server.host]).get(KEY) == NotDefined()
        assert len(server.seen) == 2
    with pytest.raises(
        ServerUnreachable, match=r"127\.0\.0\.1:1: connection refused; 127\.0\.0\.1:2: connection refused"
    ):
        MetadataServer(["127.0.0.1:1", "127.0.0.1:2"]).get(KEY)


def test_the_environment_names_another_server_and_never_a_proxy(
    server: FakeMetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", server.host)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    assert isinstance(open_server().get(KEY), Found)


@pytest.mark.parametrize("host", ["no such host", "a" * 300, "[::1", "host:port", "127.0.0.1:99999", "é", "..", "@"])
def test_a_name_that_is_none_is_an_unreachable_server(host: str) -> None:
    with pytest.raises(ServerUnreachable):
        MetadataServer([host], QUICK).get(KEY)


def test_a_connection_that_nobody_takes_ends_at_its_limit() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = [socket.socket() for _ in range(3)]  # more than there is room for: the next one gets no answer
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        with pytest.raises(ServerUnreachable, match="no answer in time"):
            MetadataServer([f"127.0.0.1:{listener.getsockname()[1]}"], QUICK).get(KEY)
        for one in waiting:
            one.close()


_STUCK = """
import sys, time
from tpuagent.errors import ServerUnreachable
from tpuagent.metadata.answers import Limits
from tpuagent.metadata.server import MetadataServer
began = time.monotonic()
try:
    MetadataServer(["metadata.google.internal"], Limits(total_s=0.5)).get("x")
except ServerUnreachable as fault:
    print(fault.why)
print(time.monotonic() - began < 1.5)
"""


def test_a_resolver_that_is_stuck_does_not_hold_up_the_client(tmp_path: Path) -> None:
    """With a name server of our own that says nothing, in a mount name space of our own."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or not unshare:
        pytest.skip("needs root and unshare")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.77\noptions timeout:30 attempts:1\n")
    script = f"mount --bind {tmp_path}/resolv.conf /etc/resolv.conf || exit 77; exec {sys.executable} -c '{_STUCK}'"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        try:
            silent.bind(("127.0.0.77", 53))
        except OSError:
            pytest.skip("cannot be a name server here")
        done = subprocess.run(
            [unshare, "-m", "sh", "-c", script], capture_output=True, text=True, timeout=30, check=False
        )
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("cannot mount here")
    assert done.stdout.split("\n")[:2] == ["metadata.google.internal: no whole answer in 0.5 s", "True"], done.stderr


# Waiting for a change ---------------------------------------------------------------------------------------------


def test_a_change_is_delivered_at_once_and_one_that_came_in_between_is_not_lost(
    server: FakeMetadataServer, client: MetadataServer
) -> None:
    first = client.get(KEY)
    assert isinstance(first, Found)
    server.put(KEY, "A: '1'\n")
    second = client.get(KEY, {**HANG, "last_etag": first.etag or ""}, hang_s=30)
    assert isinstance(second, Found)
    assert second.body == b"A: '1'\n"
    later = threading.Timer(
        QUICK.read_s + 0.2, server.put, (KEY, "A: '2'\n")
    )  # a silence that would be too long otherwise
    later.start()
    third = client.get(KEY, {**HANG, "last_etag": second.etag or ""}, hang_s=30)
    assert isinstance(third, Found)
    assert third.body == b"A: '2'\n"


def test_a_held_request_that_is_interrupted_ends_at_once_and_leaves_nothing_behind(
    server: FakeMetadataServer, client: MetadataServer
) -> None:
    ended: list[float] = []

    def hang() -> None:
        with pytest.raises(Interrupted):
            client.get(KEY, HANG, hang_s=30)
        ended.append(time.monotonic())

    for times in (1, 2, 3):
        thread = threading.Thread(target=hang)
        thread.start()
        assert server.until_asked(times)
        asked = time.monotonic()
        client.interrupt()
        thread.join(5)
        assert ended.pop() - asked < 0.2
    assert no_requests_left()


def test_an_interruption_before_the_request_is_not_lost_and_counts_once(client: MetadataServer) -> None:
    client.interrupt()
    client.interrupt()
    with pytest.raises(Interrupted):
        client.get(KEY)
    assert isinstance(client.get(KEY), Found)


# Back-off and cost ------------------------------------------------------------------------------------------------


@given(st.floats(0.01, 10), st.floats(10, 1000), st.integers(0, 10_000))
def test_the_delay_doubles_up_to_its_cap_and_for_ever(first_s: float, most_s: float, failures: int) -> None:
    backoff = Backoff(first_s, most_s)
    delays = [next_delay_s(backoff, count) for count in (failures, failures + 1)]
    assert next_delay_s(backoff, 0) == 0
    assert next_delay_s(backoff, 1) == first_s
    assert delays[1] == most_s or delays[1] == (2 * delays[0] or first_s)
    assert next_delay_s(backoff, 10**9) == most_s


def test_requests_and_yaml_are_not_imported_before_they_are_needed(run_python: RunPython) -> None:
    done = run_python(
        "-c", "import sys, tpuagent.metadata.watch; print({'requests', 'urllib3', 'yaml'} & set(sys.modules))"
    )
    assert done.stdout == "set()\n", done.stderr


@pytest.fixture
def stopwatch(server: FakeMetadataServer) -> Callable[[], float]:
    """Seconds that the server's own answer takes, asked as plainly as possible."""

    def ask() -> None:
        name, port = server.host.split(":")
        with socket.create_connection((name, int(port))) as plain:
            plain.sendall(f"GET /computeMetadata/v1/{KEY} HTTP/1.0\r\nMetadata-Flavor: Google\r\n\r\n".encode())
            while plain.recv(65536):
                pass

    return lambda: took_s(ask)


def test_the_client_adds_little_to_the_servers_own_time(client: MetadataServer, stopwatch: Callable[[], float]) -> None:
    client.get(KEY)
    pairs = sorted((took_s(lambda: client.get(KEY)) - stopwatch()) for _ in range(9))
    assert pairs[len(pairs) // 2] < 0.02
