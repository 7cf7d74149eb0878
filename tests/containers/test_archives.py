"""Is the right archive found, and does a broken one stand in nobody's way?"""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tpuagent.containers.archives import FOLDER, find_archive
from tpuagent.containers.references import parse_reference
from tpuagent.host import Host

IMAGE = "gcr.io/cloud-tpu-v2-images/vbar_control_agent:0.0.1"


def put(root: Path, name: str, listed: Any, member: str = "manifest.json", mode: str = "w") -> None:
    place = root / FOLDER.lstrip("/") / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(place, mode) as archive:  # type: ignore[call-overload]
        for path, data in (("layer.tar", b"x" * 3000), (member, json.dumps(listed).encode())):
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def found(root: Path, image: str = IMAGE) -> tuple[str | None, list[str]]:
    return find_archive(Host(str(root)), parse_reference(image))


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_an_archive_is_found_by_what_is_in_it_compressed_or_not(tmp_path: Path, mode: str) -> None:
    put(tmp_path, "a.tar", [{"RepoTags": ["other:1"]}])
    put(tmp_path, "b", [{"RepoTags": None}, {"RepoTags": ["x:1", IMAGE]}], mode=mode)
    assert found(tmp_path) == (f"{FOLDER}/b", [])


def test_an_oci_layout_names_its_images_in_the_index(tmp_path: Path) -> None:
    listed = {"manifests": [{}, {"annotations": {"io.containerd.image.name": IMAGE}}]}
    put(tmp_path, "a.tar", listed, member="index.json")
    assert found(tmp_path) == (f"{FOLDER}/a.tar", [])


def test_what_docker_leaves_out_of_a_name_is_the_same_name(tmp_path: Path) -> None:
    put(tmp_path, "a.tar", [{"RepoTags": ["busybox:latest"]}])
    for name in ("busybox", "docker.io/library/busybox:latest"):
        assert found(tmp_path, name)[0] == f"{FOLDER}/a.tar"


def test_another_tag_is_another_image_and_a_digest_is_in_no_archive(tmp_path: Path) -> None:
    put(tmp_path, "a.tar", [{"RepoTags": [IMAGE]}])
    assert found(tmp_path, IMAGE.replace("0.0.1", "0.0.2")) == (None, [])
    assert found(tmp_path, IMAGE.rpartition(":")[0] + "@sha256:" + "a" * 64) == (None, [])


def test_without_the_folder_there_is_none(tmp_path: Path) -> None:
    assert found(tmp_path) == (None, [])


@pytest.mark.parametrize("broken", [b"", b"\x1f\x8b broken", b"no tar at all" * 100, b"\xfd7zXZ\0 broken"])
def test_a_broken_archive_is_named_and_the_next_one_is_looked_at(tmp_path: Path, broken: bytes) -> None:
    put(tmp_path, "b.tar", [{"RepoTags": [IMAGE]}])
    (tmp_path / FOLDER.lstrip("/") / "a.tar").write_bytes(broken)
    path, faults = found(tmp_path)
    assert path == f"{FOLDER}/b.tar"
    assert len(faults) == 1
    assert f"{FOLDER}/a.tar" in faults[0]


@pytest.mark.parametrize("listed", [{}, 7, [7], [{"RepoTags": "x"}], [{}]])
def test_a_list_of_another_form_names_nothing(tmp_path: Path, listed: Any) -> None:
    put(tmp_path, "a.tar", listed)
    assert found(tmp_path)[0] is None


def test_an_archive_that_was_cut_off_is_named(tmp_path: Path) -> None:
    put(tmp_path, "a.tar", [{"RepoTags": [IMAGE]}], mode="w:gz")
    place = tmp_path / FOLDER.lstrip("/") / "a.tar"
    place.write_bytes(place.read_bytes()[:-40])
    path, faults = found(tmp_path)
    assert path is None
    assert len(faults) == 1
