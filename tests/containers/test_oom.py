"""Is it known that the kernel has killed for want of memory?"""

from __future__ import annotations

import pytest

from tests.fakes.machine import Machine
from tpuagent.containers.oom import RECENT_S, OomKills
from tpuagent.host import Host


@pytest.fixture
def host(machine: Machine) -> Host:
    return machine.host


def count(host: Host, kills: object) -> None:
    host.replace("/proc/vmstat", f"nr_free_pages 1007\noom_kill {kills}\nthp_fault_alloc 12\n")


def test_what_was_killed_before_does_not_count_and_what_is_killed_then_counts_for_a_while(host: Host) -> None:
    count(host, 3)
    kills = OomKills(host)
    assert not kills.recent(100.0)
    count(host, 4)
    assert kills.recent(110.0)
    assert kills.recent(110.0 + RECENT_S)
    assert not kills.recent(110.1 + RECENT_S)
    count(host, 6)
    assert kills.recent(1000.0)


def test_a_kernel_that_does_not_count_has_killed_nobody(host: Host) -> None:
    kills = OomKills(host)
    assert not kills.recent(0.0)
    for nonsense in ("", "many", "-1", "\u0663"):
        count(host, nonsense)
        assert not kills.recent(1.0)
