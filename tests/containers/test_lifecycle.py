"""Is the right thing done about a container, whatever it is and whatever happens to it?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.looks import NODES, SPEC, UNUSABLE, USABLE, container, foreign, look
from tpuagent.containers.creation import NODES_LABEL
from tpuagent.containers.lifecycle import (
    Create,
    Decision,
    Fetch,
    Look,
    Memory,
    Remove,
    Start,
    Stop,
    Unpause,
    after_fault,
    decide,
    describe_end,
    retry_delay_s,
)
from tpuagent.containers.objects import Container
from tpuagent.containers.spec import Spec
from tpuagent.errors import BadCommand, EngineRefused, ImageDenied, ImageUnknown, NoSpace, TpuAgentError
from tpuagent.values import replace

NOW = 1000.0
SEEN = Memory(fresh=False)  # by an agent that has seen it running
DATE = "2026-01-01T00:00:00Z"


def decided(one: Look, memory: Memory = SEEN, spec: Spec = SPEC, now: float = NOW) -> Decision:
    return decide(spec, memory, one, now)[1]


# Every leftover ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "action"),
    [
        (None, Create()),
        (container("created"), Start("c1")),
        (container("exited"), Start("c1")),
        (container("dead"), Remove("c1")),
        (container("paused"), Unpause("c1")),
        (container("exited", nodes=frozenset()), Remove("c1")),
        (container("created", replace(SPEC, uid="7")), Remove("c1")),
        (container("running", replace(SPEC, uid="7")), Stop("c1")),
        (container("running", nodes=frozenset()), Stop("c1")),
        (container("paused", nodes=frozenset()), Stop("c1")),
        (container("running"), None),
        (container("restarting"), None),
        (container("removing"), None),
    ],
)
def test_what_an_earlier_life_has_left_is_adopted_used_or_replaced(found: Container | None, action: object) -> None:
    assert decided(look(found), Memory()).action == action


def test_without_an_image_it_is_fetched_first() -> None:
    assert decided(look(None, has_image=False)).action == Fetch()


def test_a_container_that_runs_as_specified_is_adopted_without_a_touch() -> None:
    decision = decided(look(container("running")), Memory())
    assert (decision.state, decision.action) == ("running", None)


def test_a_node_that_is_gone_is_no_reason_to_replace_a_container_and_one_that_is_new_is() -> None:
    fewer = replace(USABLE, nodes=frozenset(sorted(NODES)[:1]))
    assert decided(look(container("running"), devices=fewer)).action is None
    more = replace(USABLE, nodes=NODES | {"/dev/vfio/13=9.9"})
    assert decided(look(container("running"), devices=more)).action == Stop("c1")


def test_it_is_not_replaced_while_its_successor_could_not_start() -> None:
    assert decided(look(container("running", replace(SPEC, uid="7")), devices=UNUSABLE)).action is None


def test_devices_do_not_matter_to_a_container_that_needs_none() -> None:
    plain = replace(SPEC, needs_devices=False)
    assert decided(look(None, devices=UNUSABLE), spec=plain).action == Create()
    assert decided(look(container("running", plain, frozenset())), spec=plain).state == "running"


# What keeps it from starting --------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [None, container("exited"), container("created")])
def test_it_waits_for_usable_functions(found: Container | None) -> None:
    decision = decided(look(found, devices=UNUSABLE))
    assert (decision.state, decision.action) == ("waiting", None)
    assert decision.reason == UNUSABLE.reason


def test_it_waits_until_it_is_known_what_kind_of_host_this_is() -> None:
    assert decided(look(None, settled=False)).state == "waiting"


@pytest.mark.parametrize("found", [None, container("exited"), container("created")])
def test_it_stands_down_beside_another(found: Container | None) -> None:
    decision = decided(look(found, conflict="the unit vbarcontrolagent.service runs"))
    assert (decision.state, decision.action) == ("stood down", None)
    assert "vbarcontrolagent" in decision.reason


def test_one_that_runs_does_not_stand_down() -> None:
    assert decided(look(container("running"), conflict="port 8353 is taken by itself")).state == "running"


@pytest.mark.parametrize("state", ["running", "exited", "created", "paused", "dead", "removing"])
def test_a_foreign_container_of_the_name_is_reported_and_never_touched(state: str) -> None:
    for off in (False, True):
        decision = decided(look(foreign(state)), spec=replace(SPEC, enabled=not off))
        assert (decision.state, decision.action) == ("blocked", None)
        assert "docker rm" in decision.reason


def test_switched_off_it_is_ended_and_removed() -> None:
    for off in (replace(SPEC, enabled=False), replace(SPEC, image="")):
        assert decided(look(container("running")), spec=off).action == Stop("c1")
        assert decided(look(container("exited")), spec=off).action == Remove("c1")
        decision = decided(look(None), spec=off)
        assert (decision.state, decision.action) == ("off", None)


def test_stopped_by_an_operator_it_is_ended_and_kept() -> None:
    assert decided(look(container("running"), stopped=True)).action == Stop("c1")
    decision = decided(look(container("exited"), stopped=True))
    assert (decision.state, decision.action) == ("stopped", None)
    assert "tpuagent containers restart vbar" in decision.reason


# Ends and their delays --------------------------------------------------------------------------------------------


class Life:
    """A container that runs for a while and ends, again and again."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.now = NOW
        self.count = 0
        self.memory, _ = decide(SPEC, self.memory, look(container("running")), self.now)

    def end(self, ran_s: float = 1.0, code: int = 3, *, oom: bool = False, oom_kills: bool = False) -> Decision:
        """It has run so long and ended."""
        self.count += 1
        self.now += ran_s
        minutes, seconds = divmod(int(ran_s), 60)
        ended = container(
            "exited",
            exit_code=code,
            oom_killed=oom,
            started_at=f"2026-01-{self.count % 27 + 1:02}T00:00:00Z",
            finished_at=f"2026-01-{self.count % 27 + 1:02}T00:{minutes:02}:{seconds:02}.{self.count}Z",
        )
        self.memory, decision = decide(SPEC, self.memory, look(ended, oom_kills=oom_kills), self.now)
        self._again = ended
        return decision

    def start(self) -> Decision:
        """The time that it has to wait is over, and it is started."""
        self.now = max(self.now, self.memory.retry_at)
        self.memory, decision = decide(SPEC, self.memory, look(self._again), self.now)
        self.memory, _ = decide(SPEC, self.memory, look(container("running")), self.now)
        return decision


def test_the_first_end_is_mended_at_once_and_the_next_ones_wait_twice_as_long_each_up_to_a_minute() -> None:
    life = Life()
    waits = []
    for _ in range(12):
        decision = life.end()
        waits.append(0.0 if decision.action else decision.wait_s)
        if not decision.action:
            assert decision.state == "back-off"
            assert "it ended with 3" in decision.reason
        assert isinstance(life.start().action, Start)
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0]
    assert life.memory.restarts == 12


def test_a_healthy_minute_makes_the_next_end_the_first_one() -> None:
    life = Life()
    for _ in range(5):
        life.end()
        life.start()
    assert life.end(ran_s=61).action == Start("c1")


def test_one_end_counts_once() -> None:
    life = Life()
    life.end()
    life.start()
    life.end()
    before = life.memory
    for _ in range(3):
        life.memory, _ = decide(SPEC, life.memory, look(life._again), life.now)  # noqa: SLF001
    assert life.memory == before


def test_what_ended_before_this_agent_looked_is_started_at_once_and_not_held_against_it() -> None:
    memory, decision = decide(SPEC, Memory(), look(container("exited", exit_code=137)), NOW)
    assert decision.action == Start("c1")
    assert (memory.failures, memory.restarts) == (0, 0)


@pytest.mark.parametrize("code", [126, 127])
def test_a_command_that_cannot_be_run_is_tried_rarely(code: int) -> None:
    decision = Life().end(code=code)
    assert (decision.state, decision.action) == ("failed", None)
    assert decision.wait_s == 60.0
    assert "containers.vbar.command" in decision.reason


def test_a_kill_for_want_of_memory_is_told_as_such() -> None:
    life = Life()
    life.end()
    life.start()
    assert "OOM" in life.end(code=137, oom=True).reason


def test_where_the_engine_has_lost_it_the_kernel_s_own_count_tells_a_kill_for_want_of_memory() -> None:
    life = Life()
    life.end()
    life.start()
    assert "OOM" in life.end(code=137, oom_kills=True).reason
    life.start()
    assert "OOM" not in life.end(code=3, oom_kills=True).reason


@pytest.mark.parametrize(("code", "words"), [(137, "SIGKILL"), (143, "SIGTERM"), (1, "ended with 1"), (255, "255")])
def test_an_end_is_told_in_words(code: int, words: str) -> None:
    assert words in describe_end(SPEC, container("exited", exit_code=code), oom_kills=False)


@pytest.mark.parametrize(
    ("fault", "state", "wait_s"),
    [
        (BadCommand("start vbar", "no such file", 400), "failed", 60.0),
        (ImageUnknown("pull it", "no such image", 404), "failed", 60.0),
        (ImageDenied("pull it", "denied", 403), "failed", 60.0),
        (EngineRefused("create it", "bad parameter", 400), "failed", 60.0),
        (NoSpace("pull it", "no space left on device"), "back-off", 0.0),
        (EngineRefused("start it", "driver failed", 500), "back-off", 0.0),
    ],
)
def test_what_a_person_has_to_mend_is_tried_rarely_and_the_rest_soon(
    fault: TpuAgentError, state: str, wait_s: float
) -> None:
    memory, decision = after_fault(SEEN, fault, NOW)
    assert (decision.state, decision.wait_s) == (state, wait_s)
    assert str(fault) in decision.reason
    again = decided(look(None), memory)
    assert again.action == (Create() if wait_s == 0 else None)


@given(st.integers(1, 10_000), st.booleans())
def test_delays_never_shrink_and_have_a_bound(failures: int, rare: bool) -> None:
    delay_s = retry_delay_s(failures, rare=rare)
    assert delay_s <= retry_delay_s(failures + 1, rare=rare) <= (600.0 if rare else 60.0)


# Readiness --------------------------------------------------------------------------------------------------------


def test_it_runs_when_it_listens() -> None:
    deaf = look(container("running"), listening=False)
    memory, decision = decide(SPEC, SEEN, deaf, NOW)
    assert (decision.state, decision.awaits_port) == ("starting", True)
    assert decision.wait_s == 30
    memory, decision = decide(SPEC, memory, deaf, NOW + 29)
    assert decision.state == "starting"
    memory, decision = decide(SPEC, memory, deaf, NOW + 31)
    assert decision.state == "silent"
    assert decision.action is None, "it is not killed for that: it may be at work"
    assert "8353" in decision.reason
    memory, decision = decide(SPEC, memory, look(container("running")), NOW + 40)
    assert decision.state == "running"


# Laws -------------------------------------------------------------------------------------------------------------

_STATES = ("created", "running", "paused", "restarting", "removing", "exited", "dead")
_CONTAINERS = st.none() | st.builds(
    container,
    st.sampled_from(_STATES),
    st.sampled_from((SPEC, replace(SPEC, uid="7"))),
    st.sampled_from((NODES, frozenset[str]())),
    exit_code=st.sampled_from((0, 1, 127, 137)),
)
_LOOKS = st.builds(
    Look,
    _CONTAINERS | st.builds(foreign, st.sampled_from(_STATES)),
    st.sampled_from((USABLE, UNUSABLE)),
    conflict=st.sampled_from(("", "a port")),
    stopped=st.booleans(),
    has_image=st.booleans(),
    listening=st.booleans(),
    settled=st.booleans(),
)
_MEMORIES = st.builds(
    Memory,
    fresh=st.booleans(),
    failures=st.integers(0, 20),
    retry_at=st.floats(0, 2 * NOW),
    state=st.sampled_from(("back-off", "failed")),
)


@given(_MEMORIES, _LOOKS, st.booleans())
def test_nothing_is_started_while_something_is_in_the_way(memory: Memory, one: Look, enabled: bool) -> None:
    spec = replace(SPEC, enabled=enabled)
    decision = decided(one, memory, spec)
    if isinstance(decision.action, Start | Create | Fetch):
        assert enabled
        assert one.devices.usable
        assert not one.stopped
        assert not one.conflict
        assert one.settled


@given(_MEMORIES, _LOOKS)
def test_only_its_own_container_is_ever_touched(memory: Memory, one: Look) -> None:
    action = decided(one, memory).action
    if isinstance(action, Start | Stop | Remove | Unpause):
        assert one.container
        assert one.container.label("tpu-agent.name") == SPEC.name
        assert action.id == one.container.id


def _done(found: Container | None, action: object) -> Container | None:
    """What the engine makes of it."""
    match action:
        case Create():
            return container("created")
        case Remove():
            return None
        case Start() | Unpause():
            assert found
            return replace(found, state="running")
        case Stop():
            assert found
            return replace(found, state="exited", started_at=DATE, finished_at=DATE)
    return found


@given(_CONTAINERS.filter(lambda found: found is None or found.state != "removing"))
def test_from_every_leftover_it_comes_to_run_as_specified_and_then_nothing_is_done(found: Container | None) -> None:
    memory, has_image = Memory(), False
    for _ in range(8):
        memory, decision = decide(SPEC, memory, look(found, has_image=has_image), NOW)
        if decision.action is None:
            break
        has_image = has_image or isinstance(decision.action, Fetch)
        found = _done(found, decision.action)
    assert decision == Decision("running")
    assert found
    assert found.label(NODES_LABEL).split() == sorted(NODES)
