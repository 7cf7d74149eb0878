"""Is a name of an image understood as an engine understands it, and is a token shown to Google's registries only?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.containers.references import parse_reference

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "registry", "name", "tag", "digest"),
    [
        ("busybox", "docker.io", "busybox", "latest", ""),
        ("library/busybox:1", "docker.io", "library/busybox", "1", ""),
        ("gcr.io/a/b:0.0.1", "gcr.io", "gcr.io/a/b", "0.0.1", ""),
        ("localhost:5000/x", "localhost:5000", "localhost:5000/x", "latest", ""),
        ("localhost/x", "localhost", "localhost/x", "latest", ""),
        (f"gcr.io/a/b@{DIGEST}", "gcr.io", "gcr.io/a/b", "", DIGEST),
        (f"gcr.io/a/b:1@{DIGEST}", "gcr.io", "gcr.io/a/b", "1", DIGEST),
        ("europe-west4-docker.pkg.dev/p/r/i:v1", "europe-west4-docker.pkg.dev",
         "europe-west4-docker.pkg.dev/p/r/i", "v1", ""),
        ("a__b/c-d.e:_x", "docker.io", "a__b/c-d.e", "_x", ""),
    ],
)  # fmt: skip
def test_a_name_has_parts(text: str, registry: str, name: str, tag: str, digest: str) -> None:
    found = parse_reference(text)
    assert (found.registry, found.name, found.tag, found.digest) == (registry, name, tag, digest)


@pytest.mark.parametrize(
    "text",
    ["", " busybox", "busybox:", "Busybox", "a//b", "a/b@sha256:1", "a:b:c", "-a", "a/", "http://gcr.io/a", "a b",
     "gcr.io/a/b:1\n", "a:" + "x" * 129, "gcr.io/a@md5:" + "a" * 32],
)  # fmt: skip
def test_what_no_engine_would_take_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the name of an image"):
        parse_reference(text)


@pytest.mark.parametrize(
    "registry", ["gcr.io", "eu.gcr.io", "us.gcr.io", "europe-docker.pkg.dev", "us-east1-docker.pkg.dev", "GCR.io"]
)
def test_registries_of_googles_are_known(registry: str) -> None:
    assert parse_reference(f"{registry}/a/b").google


@pytest.mark.parametrize(
    "registry",
    ["docker.io", "gcr.io.example.com", "notgcr.io", "evil-gcr.io", "pkg.dev.example.com", "gcr.io:5000",
     "localhost:5000", "xpkg.dev", "quay.io"],
)  # fmt: skip
def test_nobody_else_is_shown_a_token(registry: str) -> None:
    assert not parse_reference(f"{registry}/gcr.io/b").google


@given(st.text(max_size=30))
def test_any_text_is_understood_or_refused(text: str) -> None:
    try:
        found = parse_reference(text)
    except ValueError:
        return
    again = found.name + (f":{found.tag}" if found.tag else "") + (f"@{found.digest}" if found.digest else "")
    assert parse_reference(again) == found
