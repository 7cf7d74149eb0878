"""Is every setting of a container read as it was typed, and is what it would be typed as read back?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent import config
from tpuagent.containers.spec import BUILT_IN, TELEMETRY, UNLIMITED, VBAR, Mount, Policy, Spec, Ulimit
from tpuagent.containers.typed import render_typed
from tpuagent.errors import ConfigError
from tpuagent.host import Host
from tpuagent.values import replace


def policy_of(tmp_path: Path, text: str) -> Policy:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    return config.load(Host("/"), str(file)).containers


def spec_of(tmp_path: Path, text: str, name: str = "vbar") -> Spec:
    return next(spec for spec in policy_of(tmp_path, text).specs if spec.name == name)


def test_without_a_word_there_are_the_two_of_the_documentation(tmp_path: Path) -> None:
    assert policy_of(tmp_path, "").specs == (VBAR, TELEMETRY)
    assert not VBAR.off
    assert TELEMETRY.off


def test_every_field_can_be_set(tmp_path: Path) -> None:
    text = """\
containers:
  extra:
    enabled: true
    image: gcr.io/p/extra:1
    required: true
    needs_devices: true
    command: [run, "--uid={uid}", no, 010]
    uid: "1000"
    gid: 1001
    chroot: /srv
    env: {LOG: debug, ON: "on", EMPTY: ""}
    mounts: [/etc/a.yaml:/a.yaml:ro, /data:/data]
    privileged: true
    network: host
    memory: 2g
    cpus: 1.5
    ulimits: {nofile: 1000:2000, core: 0}
    log_max_size: 1m
    log_max_files: 5
    probe: tcp:9000
    pull: always
    stop_grace_s: 30
    conflicts: [other]
"""
    assert spec_of(tmp_path, text, "extra") == Spec(
        "extra",
        image="gcr.io/p/extra:1",
        required=True,
        needs_devices=True,
        command=("run", "--uid={uid}", "no", "010"),
        uid="1000",
        gid="1001",
        chroot="/srv",
        env=(("LOG", "debug"), ("ON", "on"), ("EMPTY", "")),
        mounts=(Mount("/etc/a.yaml", "/a.yaml", read_only=True), Mount("/data", "/data")),
        privileged=True,
        network="host",
        memory=2 * 1024**3,
        cpus=1.5,
        ulimits=(("memlock", Ulimit(UNLIMITED, UNLIMITED)), ("nofile", Ulimit(1000, 2000)), ("core", Ulimit(0, 0))),
        log_max_bytes=1024**2,
        log_max_files=5,
        probe_port=9000,
        pull="always",
        stop_grace_s=30,
        conflicts=("other",),
    )


def test_one_changed_field_leaves_the_others(tmp_path: Path) -> None:
    assert spec_of(tmp_path, "containers:\n  vbar:\n    uid: 1000\n") == replace(VBAR, uid="1000")


def test_null_takes_a_limit_away(tmp_path: Path) -> None:
    assert spec_of(tmp_path, "containers: {vbar: {ulimits: {memlock: null}}}").ulimits == ()


def test_an_empty_image_or_a_switch_turns_one_off(tmp_path: Path) -> None:
    assert spec_of(tmp_path, 'containers: {vbar: {image: ""}}').off
    assert spec_of(tmp_path, "containers: {vbar: {enabled: false}}").off
    assert not spec_of(tmp_path, "containers: {telemetry: {enabled: true}}", "telemetry").off


def test_the_socket_of_the_engine(tmp_path: Path) -> None:
    assert policy_of(tmp_path, "engine: {socket: auto}").socket is None
    assert policy_of(tmp_path, "engine: {socket: /run/x.sock}").socket == "/run/x.sock"


BAD = {
    "an unknown key": ("containers: {vbar: {imag: x}}", "containers.vbar.imag", "did you mean image?"),
    "a name that is none": ("containers: {Vbar: {}}", "containers.Vbar", "is not a name"),
    "an image that is none": ("containers: {vbar: {image: Gcr.io/A}}", "containers.vbar.image", "name of an image"),
    "a bare word in env": ("containers: {vbar: {env: {A: no}}}", "containers.vbar.env.A", "put it in quotes"),
    "a name of a variable": ("containers: {vbar: {env: {9a: x}}}", "containers.vbar.env.9a", "is not a name"),
    "a relative mount": ("containers: {vbar: {mounts: [a:/b]}}", "containers.vbar.mounts", "is not a mount"),
    "a mount over everything": ('containers: {vbar: {mounts: ["/a:/"]}}', "containers.vbar.mounts", "is not a mount"),
    "a mount that climbs": ('containers: {vbar: {mounts: ["/a/../b:/c"]}}', "containers.vbar.mounts", "not a mount"),
    "a network": ("containers: {vbar: {network: docker0}}", "containers.vbar.network", "is not a network"),
    "a size": ("containers: {vbar: {memory: 2 GB}}", "containers.vbar.memory", "is not a size"),
    "a size beyond any": ("containers: {vbar: {memory: 9999999999g}}", "containers.vbar.memory", "not a size"),
    "too little memory": ("containers: {vbar: {memory: 1m}}", "containers.vbar.memory", "less than an engine takes"),
    "no processor": ("containers: {vbar: {cpus: 0}}", "containers.vbar.cpus", "number of processors"),
    "a limit": ("containers: {vbar: {ulimits: {memlock: lots}}}", "containers.vbar.ulimits.memlock", "not a limit"),
    "an unknown limit": ("containers: {vbar: {ulimits: {memlok: 1}}}", "containers.vbar.ulimits.memlok", "memlock"),
    "soft above hard": ('containers: {vbar: {ulimits: {nofile: "2:1"}}}', "containers.vbar.ulimits.nofile", "above"),
    "unlimited above hard": (
        'containers: {vbar: {ulimits: {nofile: "unlimited:1"}}}', "containers.vbar.ulimits.nofile", "above",
    ),
    "a probe": ("containers: {vbar: {probe: http://x}}", "containers.vbar.probe", "tcp:8353"),
    "a port": ('containers: {vbar: {probe: "tcp:70000"}}', "containers.vbar.probe", "tcp:8353"),
    "a probe without the network": ("containers: {vbar: {network: bridge}}", "containers.vbar.probe", "network: host"),
    "a pull policy": ("containers: {vbar: {pull: sometimes}}", "containers.vbar.pull", "missing, always or never"),
    "a command in one word": ("containers: {vbar: {command: run it}}", "containers.vbar.command", "list"),
    "a list for a section": ("containers: [vbar]", "containers", "keys"),
    "a conflict": ("containers: {vbar: {conflicts: [a/b]}}", "containers.vbar.conflicts", "name of a unit"),
    "a socket": ("engine: {socket: docker.sock}", "engine.socket", "/run/docker.sock"),
    "a grace": ("containers: {vbar: {stop_grace_s: 1h}}", "containers.vbar.stop_grace_s", "0 to 300"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "key", "reason"), BAD.values(), ids=BAD)
def test_a_mistake_is_named_by_file_line_and_key(tmp_path: Path, text: str, key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy_of(tmp_path, text)
    said = str(caught.value)
    assert said.startswith(f"cannot read {tmp_path}/config.yaml: line 1: {key}")
    assert reason in said


@pytest.mark.parametrize("spec", BUILT_IN, ids=lambda spec: spec.name)
def test_the_shown_defaults_are_the_defaults(tmp_path: Path, spec: Spec) -> None:
    lines = [f"containers:\n  {spec.name}:"]
    for key, typed in render_typed(spec):
        lines += [f"    {key[0]}:", f"      {key[1]}: {typed}"] if len(key) > 1 else [f"    {key[0]}: {typed}"]
    assert spec_of(tmp_path, "\n".join(lines) + "\n", spec.name) == spec


def test_what_config_prints_is_read_back(tmp_path: Path) -> None:
    text = 'containers:\n  extra:\n    image: a:1\n    env: {A: "on"}\n    ulimits: {nofile: 5}\n  vbar: {gid: 7}\n'
    file = tmp_path / "config.yaml"
    file.write_text(text)
    first = config.load(Host("/"), str(file))
    again = tmp_path / "again.yaml"
    again.write_text(config.render(config.explain(first)))
    assert config.load(Host("/"), str(again)).containers == first.containers


@given(st.builds(Ulimit, st.integers(0, 2**40), st.integers(0, 2**40)), st.integers(1, 10**18 - 1))
def test_sizes_and_limits_are_typed_as_they_are_read(limit: Ulimit, size: int) -> None:
    from tpuagent.containers.typed import read_log_size, read_ulimit

    spec = Spec("x", ulimits=(("nofile", limit),), log_max_bytes=size)
    typed = dict(render_typed(spec))
    assert read_log_size(typed["log_max_size",], True) == size
    if limit.soft <= limit.hard:
        assert read_ulimit(typed["ulimits", "nofile"], True) == limit
