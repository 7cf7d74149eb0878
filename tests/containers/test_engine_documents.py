"""Do the documents of different engines become the same values, and does no document whatever do harm?"""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.containers import documents
from tpuagent.containers.objects import EngineEvent, EngineInfo, Image

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            "Id", "Name", "State", "Status", "Config", "Labels", "Image", "Running", "ExitCode", "Pid", "RepoTags",
            "Actor", "Attributes", "Action", "exitCode", "ID", "status", "stream", "error", "errorDetail", "message",
            "progressDetail", "current", "total", "id", "StartedAt", "Type",
        ]),
        inner,
        max_size=6,
    ),
    max_leaves=12,
)  # fmt: skip


@given(anything)
def test_no_document_whatever_raises_anything_but_a_value_error(document: Any) -> None:
    for parse in (documents.parse_container, documents.parse_image, documents.parse_id, documents.parse_ids):
        with contextlib.suppress(ValueError):
            parse(document)
    documents.parse_event(document)
    documents.parse_loaded(document)
    assert isinstance(documents.parse_error(document), str)
    assert isinstance(documents.parse_progress(document), str)
    documents.has_terminal(document)


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("created", "created"), ("running", "running"), ("paused", "paused"), ("restarting", "restarting"),
        ("removing", "removing"), ("exited", "exited"), ("dead", "dead"),
        ("configured", "created"), ("initialized", "created"), ("stopped", "exited"), ("stopping", "running"),
        ("Running", "running"), ("unheard-of", "exited"), ("", "exited"),
    ],
)  # fmt: skip
def test_podman_s_states_are_docker_s(word: str, state: str) -> None:
    assert documents.parse_container({"Id": "x", "State": {"Status": word}}).state == state


def test_a_state_without_a_known_word_is_what_its_flags_say() -> None:
    assert documents.parse_container({"Id": "x", "State": {"Running": True}}).state == "running"


def test_what_is_said_of_a_start_counts_only_while_it_does_not_run() -> None:
    for word, error in (("running", ""), ("created", "why")):
        state = {"Status": word, "Error": "why"}
        assert documents.parse_container({"Id": "x", "State": state}).error == error


def test_a_container_without_labels_and_times_has_none() -> None:
    state = {"Status": "created", "StartedAt": "0001-01-01T00:00:00Z", "FinishedAt": "0001-01-01T00:00:00Z"}
    container = documents.parse_container({"Id": "x", "Name": "/n", "State": state, "Config": {"Labels": None}})
    assert (container.name, container.labels, container.started_at, container.finished_at) == ("n", (), "", "")


def test_an_image_s_id_always_names_its_algorithm() -> None:
    bare = "0" * 64
    assert documents.parse_image({"Id": bare, "RepoTags": None, "RepoDigests": None}) == Image(f"sha256:{bare}")
    assert documents.parse_image({"Id": f"sha256:{bare}"}).id == f"sha256:{bare}"


def _event(action: str, **attributes: str) -> dict[str, Any]:
    return {"Type": "container", "Action": action, "Actor": {"ID": "x", "Attributes": {"name": "n", **attributes}}}


@pytest.mark.parametrize(
    ("document", "event"),
    [
        (_event("start"), EngineEvent("start", "x", "n")),
        (_event("die", exitCode="137"), EngineEvent("die", "x", "n", 137)),
        (_event("died", containerExitCode="3"), EngineEvent("die", "x", "n", 3)),
        (_event("die", exitCode="many"), EngineEvent("die", "x", "n")),
        (_event("remove"), EngineEvent("destroy", "x", "n")),
        (_event("exec_create: sh -c true"), EngineEvent("exec_create", "x", "n")),
        (_event("cleanup"), None),
        ({**_event("pull"), "Type": "image"}, None),
        ({}, None),
    ],
)
def test_events_of_both_engines_are_the_same(document: Any, event: EngineEvent | None) -> None:
    assert documents.parse_event(document) == event


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("Loaded image: a/b:1\n", ["a/b:1"]),
        ("Loaded image: a/b:1,a/b:2", ["a/b:1", "a/b:2"]),
        ("Loaded image ID: sha256:abc\n", ["sha256:abc"]),
        ("Loading layer", []),
    ],
)
def test_what_was_loaded_is_named(message: str, names: list[str]) -> None:
    assert documents.parse_loaded({"stream": message}) == names


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ({"status": "Pulling from x/y", "id": "1"}, "1: Pulling from x/y"),
        (
            {"status": "Downloading", "id": "ab", "progressDetail": {"current": 1_500_000, "total": 3_000_000}},
            "ab: Downloading 1.5 MB of 3.0 MB",
        ),
        ({"status": "Download complete", "id": "ab", "progressDetail": {}}, "ab: Download complete"),
        ({"stream": "Trying to pull x\n"}, "Trying to pull x"),
        ({"id": "ab"}, ""),
    ],
)
def test_progress_is_one_line(message: Any, line: str) -> None:
    assert documents.parse_progress(message) == line


@pytest.mark.parametrize(
    ("headers", "info"),
    [
        (
            {"Server": "Docker/20.10.24+dfsg1 (linux)", "Api-Version": "1.41"},
            EngineInfo("Docker", "20.10.24+dfsg1", "1.41"),
        ),
        ({"server": "Libpod/5.4.2 (linux)", "api-version": "1.41"}, EngineInfo("Podman", "5.4.2", "1.41")),
        ({"Api-Version": "1.51"}, EngineInfo("Docker", "", "1.51")),
    ],
)
def test_the_engine_is_known_by_the_head_of_its_answer(headers: dict[str, str], info: EngineInfo) -> None:
    assert documents.parse_info(headers) == info


@pytest.mark.parametrize("headers", [{}, {"Server": "nginx"}, {"Api-Version": "1.41/../.."}, {"Api-Version": ""}])
def test_somebody_else_is_no_engine(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="no container engine"):
        documents.parse_info(headers)
