"""Which image archive of this machine has an image? Hands: reads the archives' own lists.

An archive is what `docker save` or `podman save` writes, compressed or not. Its list may stand at its end, so to
find it takes one reading of the file, which is cheap beside loading it.
"""

from __future__ import annotations

import json
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any

from tpuagent.containers.references import Reference, parse_reference
from tpuagent.host import Host

FOLDER = "/var/lib/tpu-agent/images"
_MOST_LIST = 1024 * 1024


def find_archive(host: Host, wanted: Reference) -> tuple[str | None, list[str]]:
    """The path of the first archive with this name and tag, and what is wrong with archives that cannot be read.

    Archives know no registry digests, so an image that is asked for by digest alone is in none.
    """
    faults: list[str] = []
    for name in host.names(FOLDER):
        path = f"{FOLDER}/{name}"
        if name.startswith(".") or not wanted.tag:
            continue
        try:
            if any(_same(reference, wanted) for reference in _references(host.at(path))):
                return path, faults
        except (OSError, tarfile.TarError, EOFError, ValueError, lzma.LZMAError, zlib.error) as fault:
            faults.append(f"{path} is no image archive: {fault}")
    return None, faults


def _references(place: str) -> Iterator[str]:
    with tarfile.open(place) as archive:
        for member in archive:
            if member.name not in ("manifest.json", "index.json") or member.size > _MOST_LIST:
                continue
            file = archive.extractfile(member)
            listed = json.load(file) if file else []
            yield from _tags(listed) if member.name == "manifest.json" else _annotated(listed)


def _tags(listed: Any) -> Iterator[str]:
    for image in listed if isinstance(listed, list) else []:
        yield from (image.get("RepoTags") or []) if isinstance(image, dict) else []


def _annotated(listed: Any) -> Iterator[str]:
    """Of an OCI layout, where the list is `index.json`."""
    for manifest in listed.get("manifests", []) if isinstance(listed, dict) else []:
        notes = manifest.get("annotations") or {}
        yield from (
            notes[key] for key in ("io.containerd.image.name", "org.opencontainers.image.ref.name") if key in notes
        )


def _same(reference: str, wanted: Reference) -> bool:
    try:
        found = parse_reference(reference)
    except ValueError:
        return False
    return (_short(found.name), found.tag) == (_short(wanted.name), wanted.tag)


def _short(name: str) -> str:
    """Docker leaves out what it takes for granted, Podman writes it."""
    for prefix in ("docker.io/library/", "docker.io/", "localhost/"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name
