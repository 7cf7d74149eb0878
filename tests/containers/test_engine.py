"""Does each call end in time and with a fault that can be told apart, whatever the engine does?"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract.engines.archive import archive
from tests.fakes.engine import FakeEngine
from tests.fakes.engine_words import Docker, Podman
from tpuagent.containers.credentials import render_authorization
from tpuagent.containers.engine import Engine
from tpuagent.containers.http import Limits
from tpuagent.errors import (
    EngineRefused,
    EngineUnavailable,
    ImageDenied,
    ImageUnknown,
    NoSpace,
    TpuAgentError,
)

IMAGE = "gcr.io/x/y:1"
QUICK = Limits(connect_s=0.3, answer_s=0.5, stall_s=0.5, load_s=0.5, size=1024 * 1024)
PATIENT = Limits(answer_s=60, stall_s=60)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine(str(tmp_path / "engine.sock")) as running:
        running.state.add_image(IMAGE)
        yield running


def _ignored(_: str) -> None:
    """What is said of the progress."""


# No engine ------------------------------------------------------------------------------------------------------------


def test_a_socket_that_is_not_there_says_how_to_start_the_engine(tmp_path: Path) -> None:
    for name, unit in (("docker.sock", "docker"), ("podman.sock", "podman.socket")):
        with pytest.raises(EngineUnavailable) as raised:
            Engine(str(tmp_path / name)).info()
        assert raised.value.why == (
            f"there is no such socket; install an engine, or start it with: systemctl start {unit} (ENOENT)"
        )
        assert str(raised.value).startswith(f"cannot reach the container engine at {tmp_path / name}: ")


def test_a_socket_on_which_nobody_listens_says_how_to_start_the_engine(fake: FakeEngine) -> None:
    fake.stop("refusing")
    with pytest.raises(EngineUnavailable, match=r"nobody listens on it; .*systemctl start docker \(ECONNREFUSED\)"):
        Engine(fake.path).info()


def test_a_socket_that_is_not_for_the_caller_says_so(fake: FakeEngine) -> None:
    os.chmod(fake.path, 0)
    user = os.geteuid()
    if user == 0:
        os.chmod(os.path.dirname(fake.path), 0o700)
        os.seteuid(65534)
    try:
        with pytest.raises(EngineUnavailable, match=r"permission denied; ask as root \(EACCES\)"):
            Engine(fake.path).info()
    finally:
        os.seteuid(user)


def test_a_listener_that_hears_nobody_is_waited_for_no_longer_than_the_limit(tmp_path: Path) -> None:
    path = str(tmp_path / "engine.sock")
    with contextlib.ExitStack() as waiting:
        listener = waiting.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        waiting.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        begun = time.monotonic()
        with pytest.raises(EngineUnavailable, match="does not answer in time"):
            Engine(path, QUICK).info()
        assert 0.3 <= time.monotonic() - begun < 5
        engine = Engine(path, PATIENT)
        _interrupted(engine, engine.info, lambda: True)


def test_a_path_that_no_socket_can_have_is_a_fault_too() -> None:
    with pytest.raises(EngineUnavailable):
        Engine("/" + "x" * 200).info()


# Something that is no engine, or no longer ----------------------------------------------------------------------------

FAULTS = (
    "html", "html-ok", "half", "short", "broken-stream", "garbage", "hang-up", "silence", "drip", "drip-head",
    "endless", "half-a-refusal",
)  # fmt: skip
CALLS: dict[str, Callable[[Engine], object]] = {
    "container": lambda engine: engine.container("x"),
    "containers": lambda engine: engine.containers("x"),
    "create": lambda engine: engine.create("x", {"Image": IMAGE}),
    "image": lambda engine: engine.image(IMAGE),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_an_answer_that_no_engine_gives_is_an_engine_that_is_unavailable(
    fake: FakeEngine, fault: str, call: str
) -> None:
    fake.fail(fault)
    begun = time.monotonic()
    with pytest.raises(EngineUnavailable):
        CALLS[call](Engine(fake.path, QUICK))
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_pull_that_is_answered_as_no_engine_does_ends_in_time_too(fake: FakeEngine, fault: str) -> None:
    fake.fail(fault)
    with pytest.raises(EngineUnavailable):
        Engine(fake.path, QUICK).pull(IMAGE, None, _ignored)


# Events may be as rare as they like: half of one is a fault only when no more can come.
@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "drip"])
def test_events_that_no_engine_tells_end_in_time_too(fake: FakeEngine, fault: str) -> None:
    fake.fail(fault)
    engine = Engine(fake.path, QUICK)
    with pytest.raises(EngineUnavailable):
        list(engine.events())


def test_an_engine_that_hangs_when_it_is_asked_for_its_events_is_unavailable(fake: FakeEngine) -> None:
    engine = Engine(fake.path, QUICK)
    engine.info()
    fake.hang()
    with pytest.raises(EngineUnavailable, match="does not answer in time"):
        engine.events()


def test_an_error_with_a_reason_is_a_refusal_with_its_status(fake: FakeEngine) -> None:
    fake.fail("500")
    with pytest.raises(EngineRefused) as raised:
        Engine(fake.path).container("x")
    assert (raised.value.status, raised.value.why) == (500, "something went wrong")
    assert str(raised.value) == "cannot look at x: something went wrong"


def test_an_engine_that_only_fails_is_unavailable(fake: FakeEngine) -> None:
    fake.fail_always("500")
    with pytest.raises(EngineUnavailable, match="it answers 500"):
        Engine(fake.path).info()
    fake.serve()
    assert Engine(fake.path).info().name == "Docker"


def test_an_engine_that_hangs_costs_its_limit_and_no_more(fake: FakeEngine) -> None:
    engine = Engine(fake.path, QUICK)
    engine.info()
    fake.hang()
    begun = time.monotonic()
    with pytest.raises(EngineUnavailable, match=r"does not answer in time \(GET /v1.41/containers/x/json\)"):
        engine.container("x")
    assert 0.5 <= time.monotonic() - begun < 5
    fake.serve()
    assert Engine(fake.path).container("x") is None


def test_a_stop_may_take_as_much_longer_as_its_grace(fake: FakeEngine) -> None:
    fake.state.add_container("x", "gcr.io/x:stubborn")
    Engine(fake.path, Limits(answer_s=0.5)).stop("x", 1)
    assert fake.state.named("x").exit_code == 137


# Interrupted ----------------------------------------------------------------------------------------------------------


def _interrupted(engine: Engine, call: Callable[[], object], waits: Callable[[], object]) -> None:
    faults: list[TpuAgentError] = []

    def run() -> None:
        try:
            call()
        except TpuAgentError as fault:
            faults.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    assert waits()
    engine.interrupt()
    thread.join(10)
    assert not thread.is_alive()
    assert [type(fault) for fault in faults] == [EngineUnavailable]
    assert faults[0].why == "it was interrupted"
    engine.resume()


@pytest.mark.parametrize("call", [*CALLS, "info", "pull", "events", "log"])
def test_another_thread_can_interrupt_any_call(fake: FakeEngine, call: str) -> None:
    fake.state.add_container("x", IMAGE)
    fake.state.publish(IMAGE, fault="stalls")
    engine = Engine(fake.path, PATIENT)
    engine.info()
    calls: dict[str, Callable[[Engine], object]] = {
        **CALLS,
        "info": lambda engine: engine.info(),
        "pull": lambda engine: engine.pull(IMAGE, None, _ignored),
        "events": lambda engine: list(engine.events()),
        "log": lambda engine: list(engine.logs("x", lines=None, follow=True, timestamps=False)),
    }
    if call in {*CALLS, "info"}:
        fake.hang()
    before = len(fake.seen)
    asked = before + (2 if call == "log" else 1)
    _interrupted(engine, lambda: calls[call](engine), lambda: fake.until(lambda: len(fake.seen) >= asked))
    fake.serve()
    assert engine.info()


def test_what_is_closed_before_it_was_read_ends_quietly(fake: FakeEngine) -> None:
    fake.state.add_container("x", IMAGE)
    engine = Engine(fake.path)
    log = engine.logs("x", lines=None, follow=True, timestamps=False)
    log.close()
    log.close()
    assert list(log) == []


# Restarts -------------------------------------------------------------------------------------------------------------


def test_the_events_end_with_a_fault_when_the_engine_stops(fake: FakeEngine) -> None:
    engine = Engine(fake.path)
    with engine.events() as events:
        fake.state.add_container("x", IMAGE)
        assert [next(events).action, next(events).action] == ["create", "start"]
        fake.restart()
        with pytest.raises(EngineUnavailable):
            list(events)
    with engine.events() as events:
        engine.start("x")
        assert next(events).action == "start"


def test_an_engine_that_is_upgraded_is_asked_for_its_version_again(tmp_path: Path) -> None:
    with FakeEngine(str(tmp_path / "engine.sock")) as fake:
        engine = Engine(fake.path)
        assert engine.container("x") is None
        fake.state.words, fake.lowest_api = Docker("29.0.0", "1.52"), (1, 44)
        assert engine.container("x") is None
        assert engine.info().api == "1.52"
        fake.state.words, fake.lowest_api = Docker(), (1, 24)
        assert engine.image(IMAGE) is None
        fake.state.words = Podman()
        assert engine.container("x") is None
        assert engine.info().name == "Podman"


def test_the_version_is_asked_for_once(fake: FakeEngine) -> None:
    engine = Engine(fake.path)
    for _ in range(3):
        engine.container("x")
    assert len(fake.requests("GET", "/_ping")) == 1


# Images ---------------------------------------------------------------------------------------------------------------


def test_a_pull_is_for_one_tag_and_shows_the_authorization_only_if_there_is_one(fake: FakeEngine) -> None:
    fake.state.publish("gcr.io/x/new:latest", token="secret")  # noqa: S106  opens nothing
    engine = Engine(fake.path)
    with pytest.raises(ImageDenied):
        engine.pull("gcr.io/x/new", None, _ignored)
    engine.pull("gcr.io/x/new", render_authorization("secret"), _ignored)
    first, second = fake.pulls
    assert first.query == second.query == {"fromImage": "gcr.io/x/new", "tag": "latest"}
    assert "x-registry-auth" not in first.headers
    assert "x-registry-auth" in second.headers


def test_progress_is_told_while_the_image_comes(fake: FakeEngine) -> None:
    fake.state.publish(IMAGE)
    said: list[str] = []
    Engine(fake.path).pull(IMAGE, None, said.append)
    assert any("Downloading 20.0 MB of 30.0 MB" in line for line in said)


@pytest.mark.parametrize("words", [Docker(), Podman()])
@pytest.mark.parametrize(("fault", "kind"), [("fails", EngineRefused), ("no space", NoSpace)])
def test_each_way_in_which_a_pull_fails_is_told_apart(tmp_path: Path, words: Docker, fault: str, kind: type) -> None:
    with FakeEngine(str(tmp_path / "engine.sock"), words) as fake:
        fake.state.publish(IMAGE, fault=fault)
        with pytest.raises(EngineRefused) as raised:
            Engine(fake.path).pull(IMAGE, None, _ignored)
        assert type(raised.value) is kind


def test_a_pull_that_falls_silent_is_given_up(fake: FakeEngine) -> None:
    fake.state.publish(IMAGE, fault="stalls")
    with pytest.raises(EngineUnavailable, match="does not answer in time"):
        Engine(fake.path, QUICK).pull(IMAGE, None, _ignored)


def test_an_archive_is_refused_before_all_of_it_was_sent(fake: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    with open(file, "wb") as sparse:
        sparse.truncate(64 * 1024 * 1024)
    fake.fail("500")
    with pytest.raises(EngineRefused, match="something went wrong"):
        Engine(fake.path).load(str(file))


def test_an_archive_is_never_in_memory(tmp_path: Path) -> None:
    size = 64 * 1024 * 1024
    file, path = tmp_path / "image.tar", str(tmp_path / "engine.sock")
    with open(file, "wb") as sparse:
        sparse.truncate(size)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        server = threading.Thread(target=_take_archive, args=(listener, size))
        server.start()
        tracemalloc.start()
        assert Engine(path).load(str(file)) == [IMAGE]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        server.join()
    assert peak < size / 16


def _take_archive(listener: socket.socket, size: int) -> None:
    answer = b'{"stream": "Loaded image: %s\\n"}' % IMAGE.encode()
    for body in (b"OK", answer):
        connection, _ = listener.accept()
        with connection:
            left = size if body is answer else 0
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(1)
            buffer = bytearray(65536)
            while left:
                left -= connection.recv_into(buffer)
            headers = b"Api-Version: 1.41\r\nContent-Length: %d\r\n\r\n" % len(body)
            connection.sendall(b"HTTP/1.1 200 OK\r\n" + headers + body)


@pytest.mark.parametrize("kind", ["missing", "folder"])
def test_an_archive_that_cannot_be_read_is_a_fault_of_the_call(fake: FakeEngine, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "image.tar"
    if kind == "folder":
        path.mkdir()
    with pytest.raises(EngineRefused) as raised:
        Engine(fake.path).load(str(path))
    assert isinstance(raised.value, ImageUnknown) == (kind == "missing")
    assert not fake.requests("POST", "/images/load")


def test_what_is_loaded_twice_has_all_its_names(fake: FakeEngine, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    file.write_bytes(archive(b"any bytes", ["a", "b"]))
    assert len(Engine(fake.path).load(str(file))) == 2


# States that a real engine cannot be brought into at will -------------------------------------------------------------


def test_a_container_that_is_being_removed_counts_as_removed_and_keeps_its_name_meanwhile(fake: FakeEngine) -> None:
    fake.state.add_container("x", IMAGE)
    fake.state.slow_removals = True
    engine = Engine(fake.path)
    engine.remove("x", force=True)
    found = engine.container("x")
    assert found
    assert found.state == "removing"
    engine.remove("x", force=True)
    with pytest.raises(EngineRefused, match="in use"):
        engine.create("x", {"Image": IMAGE})
    fake.state.finish_removals()
    assert engine.create("x", {"Image": IMAGE})


def test_a_dead_container_can_be_removed(fake: FakeEngine) -> None:
    fake.state.add_container("x", IMAGE, "dead")
    engine = Engine(fake.path)
    found = engine.container("x")
    assert found
    assert found.state == "dead"
    engine.remove("x", force=True)
    assert engine.container("x") is None
