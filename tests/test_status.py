"""Does the first line tell the host's state, and is a dead agent's word not taken for a living one's?"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import RunPython
from tpuagent import __version__, status
from tpuagent.devices.holders import Holder
from tpuagent.devices.pci import GENERATIONS, Access, Address, Function, Generation, Node, parse_ids
from tpuagent.devices.report import Pass, Report
from tpuagent.errors import DeadlinePassed, NodeFault
from tpuagent.host import Host
from tpuagent.values import replace

V5P, V6E, TPU7X = GENERATIONS
NO_IOMMU = "no IOMMU group; boot with intel_iommu=on,sm_on (EINVAL)"


def ready(slot: int, generation: Generation = V5P) -> Report:
    group = str(slot + 10)
    node = Node(f"/dev/vfio/{group}", os.makedev(511, slot), Access(0o666, 0, 0))
    return Report(Function(Address(0, 0, slot, 0), generation, "vfio-pci", group, nodes=(node,)), "ready")


def other(slot: int, state: str, reason: str = "", generation: Generation = V5P, driver: str | None = None) -> Report:
    return Report(Function(Address(0, 0, slot, 0), generation, driver, str(slot + 10)), state, reason)


def of(*reports: Report, troubles: Sequence[str] = (), accel_nodes: tuple[str, ...] = ()) -> status.Document:
    seen = Pass(reports, accel_nodes=accel_nodes)
    return status.build_status(seen, troubles, pid=4711, started_ticks="12345")


# The first line ---------------------------------------------------------------------------------------------------


def test_eight_functions_that_are_right_are_said_in_one_short_line() -> None:
    document = of(*(ready(slot) for slot in range(4, 12)))
    assert (document["state"], document["summary"]) == ("ready", "8 of 8 v5p functions ready")


def test_two_functions_of_a_chip_are_counted_as_functions_and_as_one_chip() -> None:
    assert of(*(ready(slot, TPU7X) for slot in range(8)))["summary"] == "8 of 8 tpu7x (4 chips) functions ready"
    assert of(*(ready(slot, TPU7X) for slot in range(2)))["summary"] == "2 of 2 tpu7x (1 chip) functions ready"


def test_each_generation_of_a_mixed_host_is_counted() -> None:
    reports = [*(ready(slot) for slot in range(4)), ready(4, V6E), other(5, "unbound", "no driver has it", V6E)]
    assert of(*reports)["summary"].startswith("4 of 4 v5p, 1 of 2 v6e functions ready; 0000:00:05.0 unbound: no driver")


def test_a_host_without_a_tpu_is_ready_and_says_so() -> None:
    document = of()
    assert (document["state"], document["summary"]) == ("ready", "no TPU functions on this host")


def test_a_host_with_accel_nodes_alone_is_ready_and_says_so() -> None:
    document = of(accel_nodes=("/dev/accel0", "/dev/accel1"))
    assert (document["state"], document["summary"]) == ("ready", "no TPU function to bind, 2 accel nodes")


def test_functions_that_all_fail_alike_have_their_reason_told_once() -> None:
    document = of(*(other(slot, "blocked", NO_IOMMU) for slot in range(8)))
    assert document["state"] == "degraded"
    assert document["summary"] == f"0 of 8 v5p functions ready; 8 blocked: {NO_IOMMU}"


def test_one_function_that_fails_is_named_and_different_reasons_are_all_told() -> None:
    document = of(ready(4), other(5, "blocked", NO_IOMMU), other(6, "in-use", "process 7 (python3) holds it"))
    assert document["summary"] == (
        f"1 of 3 v5p functions ready; 0000:00:05.0 blocked: {NO_IOMMU};"
        " 0000:00:06.0 in-use: process 7 (python3) holds it"
    )


def test_a_fault_of_the_host_or_of_the_agent_makes_a_host_of_good_functions_degraded() -> None:
    assert of(ready(4), troubles=["the old configuration is kept"])["summary"].endswith(
        "; the old configuration is kept"
    )
    fault = NodeFault("give nodes to their group", "there is no group tpu")
    document = status.build_status(Pass((ready(4),), errors=(fault,)), [], pid=1, started_ticks="1")
    assert document["state"] == "degraded"
    assert document["summary"] == f"1 of 1 v5p functions ready; {fault}"


def test_before_the_first_pass_it_is_starting() -> None:
    document = status.build_status(None, [], pid=1, started_ticks="1")
    assert (document["state"], document["devices"]) == ("starting", [])
    assert document["summary"]


def test_a_first_pass_that_could_not_be_made_is_no_start_any_more_and_its_reason_is_told() -> None:
    fault = str(DeadlinePassed("lock /run/tpu-agent/devices.lock", "process 7 has held it for 30 s"))
    document = status.build_status(None, [fault], pid=1, started_ticks="1")
    assert document["state"] == "degraded"
    assert fault in document["summary"]


# Keys -------------------------------------------------------------------------------------------------------------


def test_the_keys_of_a_function_are_those_that_are_documented() -> None:
    held = replace(ready(4), state="in-use", reason="x", holders=(Holder(7, "python3 train.py"),))
    assert status.device_entry(held) == {
        "address": "0000:00:04.0",
        "generation": "v5p",
        "driver": "vfio-pci",
        "group": "14",
        "node": "/dev/vfio/14",
        "mode": "0666",
        "state": "in-use",
        "reason": "x",
        "holders": [{"pid": 7, "command": "python3 train.py"}],
    }


def test_a_function_without_driver_group_and_node_has_null_for_them() -> None:
    entry = status.device_entry(Report(Function(Address(0, 0, 4, 0), V5P, None, None), "blocked", NO_IOMMU))
    assert [entry[key] for key in ("driver", "group", "node", "mode", "holders")] == [None, None, None, None, []]


def test_the_document_says_its_schema_and_who_wrote_it() -> None:
    document = of(ready(4))
    assert set(document) == {"schema", "version", "state", "summary", "devices", "tpu_env", "containers", "agent"}
    assert document["schema"] == 1
    assert document["version"] == __version__
    assert document["agent"] == {"pid": 4711, "started_ticks": "12345"}


# Keeping ----------------------------------------------------------------------------------------------------------


def write_stat(root: Path, pid: int, name: str, started: str) -> None:
    """What proc_pid_stat(5) describes; the start is field 22."""
    (root / f"proc/{pid}").mkdir(parents=True, exist_ok=True)
    fields = ["S", *map(str, range(4, 22)), started, "23", "24"]
    (root / f"proc/{pid}/stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def published(root: Path, pid: int = 4711, started: str = "98765") -> Host:
    host = Host(str(root))
    status.write_status(host, status.build_status(Pass((ready(4),)), [], pid=pid, started_ticks=started))
    return host


@pytest.mark.parametrize(
    "name", ["tpuagent", "tpu agent", "a) S 1 (b", "((", "", ") 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20"]
)
def test_a_start_is_read_whatever_the_name_of_the_process(tmp_path: Path, name: str) -> None:
    write_stat(tmp_path, 4711, name, "98765")
    assert status.started_ticks(Host(str(tmp_path)), 4711) == "98765"


def test_a_real_process_has_a_start_and_one_that_is_gone_has_none() -> None:
    assert status.started_ticks(Host(), os.getpid()).isdecimal()
    assert not status.started_ticks(Host(), 5_000_000)


def test_what_a_living_agent_has_published_is_read_back_as_it_was(tmp_path: Path) -> None:
    write_stat(tmp_path, 4711, "tpuagent", "98765")
    document = status.read_status(published(tmp_path))
    assert document == status.build_status(Pass((ready(4),)), [], pid=4711, started_ticks="98765")


def test_everybody_may_read_it(tmp_path: Path) -> None:
    published(tmp_path)
    assert (tmp_path / status.STATUS_FILE[1:]).stat().st_mode & 0o777 == 0o644


def test_what_a_dead_agent_has_left_is_not_believed(tmp_path: Path) -> None:
    assert status.read_status(published(tmp_path)) is None


def test_another_process_with_the_number_of_a_dead_agent_is_not_taken_for_it(tmp_path: Path) -> None:
    write_stat(tmp_path, 4711, "tpuagent", "98766")
    assert status.read_status(published(tmp_path)) is None


def test_an_agent_that_did_not_know_its_own_start_is_not_taken_for_a_living_one(tmp_path: Path) -> None:
    assert status.read_status(published(tmp_path, started="")) is None


def test_nothing_published_means_that_no_agent_runs(tmp_path: Path) -> None:
    assert status.read_status(Host(str(tmp_path))) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "{}", '{"agent": null}', '{"agent": {"pid": 1}}', "\x00\xff"])
def test_a_damaged_file_means_that_no_agent_runs(tmp_path: Path, text: str) -> None:
    place = tmp_path / status.STATUS_FILE[1:]
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert status.read_status(Host(str(tmp_path))) is None


def test_an_agent_that_was_killed_is_seen_to_be_gone(tmp_path: Path, run_python: RunPython) -> None:
    script = """
import os, sys
from tpuagent import status
from tpuagent.devices.report import Pass
from tpuagent.host import Host
mine = status.started_ticks(Host(), os.getpid())
status.write_status(Host(sys.argv[1]), status.build_status(Pass(()), [], pid=os.getpid(), started_ticks=mine))
"""
    (tmp_path / "proc").symlink_to("/proc")
    assert run_python("-c", script, str(tmp_path)).returncode == 0
    assert json.loads((tmp_path / status.STATUS_FILE[1:]).read_text())["agent"]["started_ticks"]
    assert status.read_status(Host(str(tmp_path))) is None


# Showing ----------------------------------------------------------------------------------------------------------


def test_the_table_has_a_line_for_each_function_and_fits_a_terminal() -> None:
    wide = Generation("v10-preview", parse_ids("1ae0:0001:1ae0:0001"))
    reports = [ready(4), ready(5, TPU7X), other(6, "wrong-driver", "bound to gasket", driver="gasket", generation=wide)]
    lines = status.device_table([status.device_entry(report) for report in reports]).splitlines()
    assert [line.split()[0] for line in lines] == ["ADDRESS", "0000:00:04.0", "0000:00:05.0", "0000:00:06.0", "bound"]
    assert lines[1].split() == ["0000:00:04.0", "v5p", "ready", "vfio-pci", "14", "/dev/vfio/14", "0666"]
    assert lines[3].split() == ["0000:00:06.0", "v10-preview", "wrong-driver", "gasket", "16", "-", "-"]
    assert max(map(len, lines)) <= 80
    assert (
        len({line.index(word) for line, word in zip(lines[:4], ("STATE", "ready", "ready", "wrong-"), strict=True)})
        == 1
    )


def test_below_a_function_stand_its_reason_and_who_holds_it() -> None:
    held = replace(ready(4), state="in-use", reason="it is held", holders=(Holder(7, "a b"), Holder(8, "c")))
    assert status.device_table([status.device_entry(held)]).splitlines()[2:] == [
        "  it is held",
        "  held by process 7 (a b)",
        "  held by process 8 (c)",
    ]


def test_no_function_is_a_sentence_and_not_an_empty_table() -> None:
    assert status.device_table([]) == "no TPU functions on this host"


def test_the_text_begins_with_the_state_and_the_summary() -> None:
    lines = status.as_text(of(*(ready(slot) for slot in range(4, 12)))).splitlines()
    assert lines[0] == "ready: 8 of 8 v5p functions ready"
    assert lines[1] == f"agent {__version__}, process 4711"
    assert lines[2] == "tpu-env waiting"
    assert len(lines) == 4 + 8
    assert len(status.as_text(of()).splitlines()) == 3


_states = st.sampled_from(["ready", "unbound", "wrong-driver", "blocked", "in-use", "released", "stuck", "failed"])
_reasons = st.sampled_from(["", "a", "b"])
_reports = st.builds(ready, st.integers(0, 31), st.sampled_from(GENERATIONS)) | st.builds(
    other, st.integers(0, 31), _states.filter("ready".__ne__), _reasons, st.sampled_from(GENERATIONS)
)


@given(st.lists(_reports, max_size=12, unique_by=lambda report: report.function.address))
def test_the_first_line_counts_every_function_and_ready_means_that_all_are(reports: list[Report]) -> None:
    document = of(*reports)
    states = [report.state for report in reports]
    assert document["state"] == ("ready" if set(states) <= {"ready"} else "degraded")
    counts = document["summary"].partition(" functions ready")[0].split(", ") if reports else []
    assert sum(int(part.split()[0]) for part in counts) == states.count("ready")
    assert sum(int(part.split()[2]) for part in counts) == len(reports)
    assert json.loads(json.dumps(document)) == document
