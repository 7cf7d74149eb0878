"""Is a container asked for as it is specified, and as documented?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.containers.looks import NODES, container
from tpuagent.containers.creation import NODES_LABEL, is_as_specified, render_command, render_creation
from tpuagent.containers.spec import TELEMETRY, VBAR, Mount, Spec, Ulimit
from tpuagent.values import replace


def test_vbar_is_asked_for_as_documented() -> None:
    body = render_creation(VBAR, NODES)
    assert body["Image"] == "gcr.io/cloud-tpu-v2-images/vbar_control_agent:0.0.1"
    assert body["Cmd"] == [
        "vbar_control_agent", "--logtostderr", "--gid=", "--uid=", "--chroot=", "--census_enabled=false",
        "--loas_pwd_fallback_in_corp",
    ]  # fmt: skip
    host = body["HostConfig"]
    assert host["Privileged"] is True
    assert host["NetworkMode"] == "host"
    assert host["Ulimits"] == [{"Name": "memlock", "Soft": -1, "Hard": -1}]
    assert host["LogConfig"] == {"Type": "json-file", "Config": {"max-size": "10485760", "max-file": "3"}}
    assert host["RestartPolicy"] == {"Name": "no"}
    assert body["Labels"][NODES_LABEL].split() == sorted(NODES)


def test_telemetry_runs_what_its_image_says() -> None:
    assert "Cmd" not in render_creation(TELEMETRY)


def test_the_settings_of_the_command_are_put_in_and_nothing_else_is() -> None:
    spec = replace(VBAR, uid="1000", gid="{uid}", chroot="/srv", command=("{uid}", "--gid={gid}", "{chroot}{x}", "{}"))
    assert render_command(spec) == ["1000", "--gid={uid}", "/srv{x}", "{}"]


def test_everything_that_can_be_set_reaches_the_engine() -> None:
    spec = Spec(
        "x", image="a:1", command=("run",), env=(("A", "1"),), mounts=(Mount("/a", "/b", read_only=True),),
        network="none", memory=64, cpus=1.5, ulimits=(("nofile", Ulimit(1, 2)),), log_max_bytes=0,
    )  # fmt: skip
    body = render_creation(spec)
    assert (body["Cmd"], body["Env"]) == (["run"], ["A=1"])
    host = body["HostConfig"]
    assert (host["Binds"], host["NetworkMode"], host["Memory"]) == (["/a:/b:ro"], "none", 64)
    assert host["NanoCpus"] == 1_500_000_000
    assert host["Ulimits"] == [{"Name": "nofile", "Soft": 1, "Hard": 2}]
    assert host["LogConfig"]["Config"] == {}
    assert "UsernsMode" not in host


@pytest.mark.parametrize(
    "other",
    [
        replace(VBAR, image="gcr.io/x:2"),
        replace(VBAR, uid="1"),
        replace(VBAR, env=(("A", "1"),)),
        replace(VBAR, privileged=False),
        replace(VBAR, memory=1 << 30),
        replace(VBAR, log_max_files=9),
        replace(VBAR, mounts=(Mount("/a", "/b"),)),
    ],
)
def test_another_specification_is_another_container(other: Spec) -> None:
    assert is_as_specified(container("running"), VBAR, NODES)
    assert not is_as_specified(container("running"), other, NODES)


@pytest.mark.parametrize(
    "same",
    [
        replace(VBAR, required=False),
        replace(VBAR, probe_port=None),
        replace(VBAR, conflicts=()),
        replace(VBAR, pull="always"),
        replace(VBAR, stop_grace_s=99),
    ],
)
def test_what_only_the_agent_needs_to_know_replaces_nothing(same: Spec) -> None:
    assert is_as_specified(container("running"), same, NODES)


@given(st.frozensets(st.sampled_from(["/dev/vfio/1=1.1", "/dev/vfio/2=2.2", "/dev/vfio/1=9.9"])),
       st.frozensets(st.sampled_from(["/dev/vfio/1=1.1", "/dev/vfio/2=2.2", "/dev/vfio/1=9.9"])))  # fmt: skip
def test_a_container_does_not_see_nodes_that_were_made_later(then: frozenset[str], now: frozenset[str]) -> None:
    assert is_as_specified(container("running", nodes=then), VBAR, now) == (now <= then)
