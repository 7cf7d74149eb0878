"""How is an image made of nothing but a program? An archive as `docker save` writes it."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterable

from tests.contract.engines.engines import COMMANDS, reference

BUSYBOX = "/bin/busybox"
File = tuple[str, bytes, int]


def layer(program: bytes) -> bytes:
    """The one layer: the program, and a file that is none."""
    return packed([("bin/busybox", program, 0o755), ("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", 0o644)])


def configuration(of_layer: bytes, created: str = "2024-01-01T00:00:00Z") -> bytes:
    """The image's own document; with another time it is another image."""
    document = {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/busybox", "true"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(of_layer)}"]},
    }
    return json.dumps(document).encode()


def archive(program: bytes, tags: Iterable[str] = tuple(COMMANDS)) -> bytes:
    """The image under all these tags."""
    content = layer(program)
    config = configuration(content)
    name = f"{sha256(config)}.json"
    listed = [{"Config": name, "RepoTags": [reference(tag) for tag in tags], "Layers": ["layer.tar"]}]
    return packed([
        (name, config, 0o644), ("layer.tar", content, 0o644), ("manifest.json", json.dumps(listed).encode(), 0o644)
    ])  # fmt: skip


def sha256(data: bytes) -> str:
    """The digest by which images name what they are made of."""
    return hashlib.sha256(data).hexdigest()


def packed(files: Iterable[File]) -> bytes:
    """An archive of files: name, content, mode."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as target:
        for name, content, mode in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            target.addfile(entry, io.BytesIO(content))
    return made.getvalue()
