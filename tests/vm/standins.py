"""What stands in for Google's images: small ones around a static busybox, as registries and archives have them.

Nothing is built by an engine. A stand-in listens where the original does, and on request misbehaves as originals do.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

PROJECT = "cloud-tpu-v2-images"
VBAR = f"{PROJECT}/vbar_control_agent"
TELEMETRY = f"{PROJECT}/ai-telemetry-collector"
REGISTRY = "gcr.io"
PORT = 8353

# A request is a line on the port, or the first argument: `crash 3`, `hang`, `leak`, `log`, `deaf`, `slow 5`.
_AGENT = f"""\
#!/bin/busybox sh
export PATH=/bin
busybox echo "stand-in started: $*" >&2
busybox mkfifo /run/requests 2>/dev/null
trap 'busybox echo "asked to end" >&2; exit 0' TERM
listen() {{ busybox nc -ll -p {PORT} -e /bin/request & listener=$!; }}
[ -e /etc/quiet ] || listen
carry_out() {{
    case $1 in
    crash) exit "$2" ;;
    hang) busybox kill -9 $listener ;;
    leak) exec busybox dd if=/dev/zero of=/dev/null bs=300M count=1 ;;
    log) busybox yes "a line of the stand-in that goes on without end" ;;
    deaf) trap '' TERM ;;
    slow) trap 'busybox sleep '"$2"'; exit 0' TERM ;;
    esac
}}
[ -e /etc/at-start ] && carry_out $(busybox cat /etc/at-start)
while :; do
    # Opened for both directions, so that it does not end with its first writer; the trap runs between two lines.
    if IFS= read -r -t 1 request <>/run/requests; then carry_out $request; fi
done
"""
_REQUEST = """\
#!/bin/busybox sh
IFS= read -r line && busybox echo "$line" >/run/requests
"""


@dataclass(frozen=True)
class Blob:
    """Content with its digest."""

    data: bytes

    @property
    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class StandIn:
    """An image. `config` and `layer` are its two blobs."""

    repository: str
    tag: str
    config: Blob
    layer: Blob

    @property
    def reference(self) -> str:
        return f"{REGISTRY}/{self.repository}:{self.tag}"

    @property
    def manifest(self) -> Blob:
        layer = {"mediaType": "application/vnd.docker.image.rootfs.diff.tar", **_described(self.layer)}
        config = {"mediaType": "application/vnd.docker.container.image.v1+json", **_described(self.config)}
        kind = "application/vnd.docker.distribution.manifest.v2+json"
        return Blob(json.dumps({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]}).encode())


def build(busybox: bytes, repository: str, tag: str, at_start: str = "", *, program: bool = True) -> StandIn:
    """`at_start` is a request that it carries out when it starts; without `program` its command is not found."""
    files = {"bin/busybox": (busybox, 0o755), "bin/request": (_REQUEST.encode(), 0o755), "run/.keep": (b"", 0o644)}
    name = repository.rpartition("/")[2]
    if program:
        files[f"bin/{name}"] = (_AGENT.encode(), 0o755)
    if at_start:
        files["etc/at-start"] = (f"{at_start}\n".encode(), 0o644)
    if name not in VBAR:
        files["etc/quiet"] = (b"", 0o644)
    layer = Blob(_tar(files))
    settings = {"Cmd": [name], "Env": ["PATH=/bin"]}
    config = {
        "architecture": "amd64",
        "os": "linux",
        "created": "2024-01-01T00:00:00Z",
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        "history": [{"created": "2024-01-01T00:00:00Z", "created_by": at_start or "stand-in"}],
    }
    return StandIn(repository, tag, Blob(json.dumps(config).encode()), layer)


def all_of_them(busybox: bytes) -> list[StandIn]:
    """The two of the default configuration, and others that misbehave from the start."""
    return [
        build(busybox, VBAR, "0.0.1"),
        build(busybox, VBAR, "crash", "crash 3"),
        build(busybox, VBAR, "notfound", program=False),
        build(busybox, TELEMETRY, "latest"),
        build(busybox, TELEMETRY, "next", "deaf"),
    ]


def in_storage(image: StandIn) -> Iterator[tuple[str, bytes]]:
    """The files of a registry's storage that make it have the image: path below the root, and content."""
    root = "docker/registry/v2"
    manifest = image.manifest
    for blob in (image.config, image.layer, manifest):
        hexadecimal = blob.digest.partition(":")[2]
        yield f"{root}/blobs/sha256/{hexadecimal[:2]}/{hexadecimal}/data", blob.data
    folder = f"{root}/repositories/{image.repository}"
    for blob in (image.config, image.layer):
        yield f"{folder}/_layers/{_path(blob)}/link", blob.digest.encode()
    yield f"{folder}/_manifests/revisions/{_path(manifest)}/link", manifest.digest.encode()
    yield f"{folder}/_manifests/tags/{image.tag}/current/link", manifest.digest.encode()
    yield f"{folder}/_manifests/tags/{image.tag}/index/{_path(manifest)}/link", manifest.digest.encode()


def archive(image: StandIn) -> bytes:
    """As `docker save` writes it."""
    name = f"{image.config.digest.partition(':')[2]}.json"
    listed = [{"Config": name, "RepoTags": [image.reference], "Layers": ["layer.tar"]}]
    files = {name: image.config.data, "layer.tar": image.layer.data, "manifest.json": json.dumps(listed).encode()}
    return _tar({path: (data, 0o644) for path, data in files.items()})


def _described(blob: Blob) -> dict[str, object]:
    return {"size": len(blob.data), "digest": blob.digest}


def _path(blob: Blob) -> str:
    return blob.digest.replace(":", "/")


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for path, (data, mode) in files.items():
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), mode
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()
