"""Does a container stand down beside what does its work already, and only then?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tpuagent.containers.conflicts import find_conflict
from tpuagent.containers.objects import Container
from tpuagent.containers.ports import describe_listener, listening_sockets
from tpuagent.containers.spec import VBAR, Spec
from tpuagent.host import Host
from tpuagent.values import replace

HEADING = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
UNIT = "vbarcontrolagent.service"


def row(port: int, inode: int, state: str = "0A", address: str = "00000000") -> str:
    return f"   0: {address}:{port:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1\n"


class Containers:
    """An engine with these containers."""

    def __init__(self, *found: Container) -> None:
        self._found = found

    def container(self, name: str) -> Container | None:
        return next((one for one in self._found if one.name == name), None)


class Root:
    """A host's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.host = Host(str(path))

    def put(self, path: str, text: str = "") -> None:
        place = self.path / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def conflict(self, *found: Container, spec: Spec = VBAR, gke: bool = False) -> str:
        return find_conflict(self.host, Containers(*found), spec, gke=gke)


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_on_a_plain_host_nothing_is_in_the_way(root: Root) -> None:
    assert root.conflict() == ""


def test_kubernetes_engine_runs_it_itself(root: Root) -> None:
    assert "Kubernetes" in root.conflict(gke=True)
    assert root.conflict(spec=replace(VBAR, conflicts=()), gke=True) == "", (
        "a container of the user's own is no stock one"
    )


@pytest.mark.parametrize("group", ["/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/systemd/system.slice"])
def test_a_unit_that_runs(root: Root, group: str) -> None:
    root.put(f"{group}/{UNIT}/cgroup.procs", "7\n")
    assert f"systemctl disable --now {UNIT}" in root.conflict()


def test_a_unit_that_is_going_to_run(root: Root) -> None:
    root.put(f"/etc/systemd/system/multi-user.target.wants/{UNIT}")
    assert "is enabled" in root.conflict()


def test_a_unit_that_is_masked_never_runs(root: Root) -> None:
    root.put(f"/etc/systemd/system/multi-user.target.wants/{UNIT}")
    (root.path / "etc/systemd/system" / UNIT).symlink_to("/dev/null")
    assert root.conflict() == ""


def test_a_unit_that_is_only_installed(root: Root) -> None:
    root.put(f"/etc/systemd/system/{UNIT}")
    assert root.conflict() == ""


def test_a_snap(root: Root) -> None:
    root.put("/snap/vbarcontrolagent/current/meta/snap.yaml")
    assert "snap remove vbarcontrolagent" in root.conflict()


@pytest.mark.parametrize("state", ["running", "restarting", "paused", "created"])
def test_a_container_of_the_stock_name(root: Root, state: str) -> None:
    found = Container("c1", "vbarcontrolagent", "x", "sha256:1", state)
    assert "docker rm -f vbarcontrolagent" in root.conflict(found)


@pytest.mark.parametrize("state", ["exited", "dead"])
def test_a_container_of_the_stock_name_that_has_ended(root: Root, state: str) -> None:
    assert root.conflict(Container("c1", "vbarcontrolagent", "x", "sha256:1", state)) == ""


@pytest.mark.parametrize("table", ["/proc/net/tcp", "/proc/net/tcp6"])
def test_the_port_in_somebody_elses_hands(root: Root, table: str) -> None:
    root.put(table, HEADING + row(22, 1) + row(8353, 777))
    root.put("/proc/42/comm", "nginx\n")
    (root.path / "proc/42/fd").mkdir()
    (root.path / "proc/42/fd/3").symlink_to("socket:[777]")
    assert root.conflict() == "port 8353 is taken by process 42 (nginx)"
    assert root.conflict(spec=replace(VBAR, probe_port=None)) == ""


def test_a_connection_of_that_number_is_no_listener(root: Root) -> None:
    root.put("/proc/net/tcp", HEADING + row(8353, 5, state="01") + row(53, 6) + "  garbage\n")
    assert listening_sockets(root.host, 8353) == frozenset()
    assert root.conflict() == ""


def test_a_listener_whose_process_cannot_be_seen(root: Root) -> None:
    root.put("/proc/net/tcp", HEADING + row(8353, 5))
    assert "cannot be seen" in describe_listener(root.host, 8353)


def test_the_table_of_the_real_kernel_is_understood() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert len(listening_sockets(Host(), port)) == 1
        assert "process" in describe_listener(Host(), port)
    assert not listening_sockets(Host(), port)
