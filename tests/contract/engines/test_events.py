"""What does an engine tell while something happens to a container, and how does the telling end?"""

from __future__ import annotations

import threading

import pytest

from tests.contract.engines.engines import LIMIT_S, EngineAtHand, await_event, body, followed
from tpuagent.containers.engine import Engine
from tpuagent.errors import EngineUnavailable

ESSENTIAL = {"create", "start", "die", "destroy"}


def test_the_life_of_a_container_is_told_in_order_with_its_id_and_exit_code(engine: Engine, name: str) -> None:
    with followed(engine) as events:
        identity = engine.create(name, body("exit-7"))
        engine.start(identity)
        told = [await_event(events, action, name) for action in ("create", "start", "die")]
        engine.remove(identity, force=True)
        told.append(await_event(events, "destroy", name))
    assert [(event.action, event.id, event.exit_code) for event in told] == [
        ("create", identity, None), ("start", identity, None), ("die", identity, 7), ("destroy", identity, None)
    ]  # fmt: skip


def test_nothing_from_before_is_told_and_each_event_once(engine: Engine, name: str) -> None:
    before = engine.create(f"{name}-before", body("lives"))
    with followed(engine) as events:
        identity = engine.create(name, body("lives"))
        engine.remove(identity, force=True)
        engine.remove(before, force=True)
        told = []
        for event in events:
            told.append((event.action, event.name))
            if told[-1] == ("destroy", f"{name}-before"):
                break
    assert [one for one in told if one[0] in ESSENTIAL] == [
        ("create", name), ("destroy", name), ("destroy", f"{name}-before")
    ]  # fmt: skip


def test_a_container_that_is_killed_tells_of_its_death(engine: Engine, name: str) -> None:
    with followed(engine) as events:
        identity = engine.create(name, body("stubborn"))
        engine.start(identity)
        engine.remove(identity, force=True)
        await_event(events, "die", name)
        await_event(events, "destroy", name)


def test_another_thread_can_end_the_wait_for_the_next_event(engine: Engine) -> None:
    events = engine.events()
    waiting = threading.Thread(target=lambda: list(events))
    waiting.start()
    events.close()
    waiting.join(LIMIT_S)
    assert not waiting.is_alive()
    assert list(events) == []


def test_an_interrupt_ends_it_with_a_fault(engine: Engine) -> None:
    with engine.events() as events:
        engine.interrupt()
        with pytest.raises(EngineUnavailable, match="interrupted"):
            next(events)
    with pytest.raises(EngineUnavailable, match="interrupted"):
        engine.info()
    engine.resume()
    assert engine.info()


def test_the_engine_says_who_it_is(at_hand: EngineAtHand, engine: Engine) -> None:
    info = engine.info()
    assert info.name == ("Podman" if at_hand.podman else "Docker")
    assert info.version[0].isdigit()
    major, minor = map(int, info.api.split("."))
    assert (major, minor) >= (1, 40)
