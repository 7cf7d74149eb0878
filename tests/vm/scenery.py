"""What a guest about containers has besides the package: a gcr.io, a metadata server, an engine that starts at boot.

An image with all of it is built once; its first boot needs no hand.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from . import standins
from .metadata import SERVER, SERVER_UNIT, VALUES, as_yaml

HERE = Path(__file__).parent
STORAGE = "/var/lib/docker-registry"
ARCHIVES = "/root/archives"
REQUESTS = "/var/log/gcr.log"
_TLS = "/etc/gcr"
_REGISTRY_UNIT = """\
[Unit]
Description=The registry behind gcr.io
DefaultDependencies=no
After=local-fs.target
Conflicts=shutdown.target
Before=shutdown.target

[Service]
ExecStart=/usr/bin/docker-registry serve /etc/gcr/registry.yml

[Install]
WantedBy=multi-user.target
"""
_REGISTRY = f"""\
version: 0.1
log: {{level: warn}}
storage: {{filesystem: {{rootdirectory: {STORAGE}}}, cache: {{blobdescriptor: inmemory}}}}
http: {{addr: "127.0.0.1:5000", secret: x}}
"""
_FRONT_UNIT = f"""\
[Unit]
Description=gcr.io
Requires=gcr-storage.service
After=gcr-storage.service metadata-server.service
Before=docker.service

[Service]
ExecStart=/usr/bin/python3 -I /usr/local/lib/gcr.py {_TLS}/gcr.crt {_TLS}/gcr.key
Restart=on-failure

[Install]
WantedBy=multi-user.target
"""
_CERTIFICATES = r"""
openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=a private authority" -keyout ca.key -out ca.crt
openssl req -newkey rsa:2048 -nodes -subj "/CN=gcr.io" -keyout gcr.key -out gcr.csr
printf 'subjectAltName=DNS:gcr.io\n' >extensions
openssl x509 -req -in gcr.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile extensions -out gcr.crt
"""
# In a chroot: which units the first boot starts.
DOCKER = "systemctl enable docker.service docker.socket containerd.service"
PODMAN = "systemctl mask docker.service docker.socket containerd.service; systemctl enable podman.socket"
ENABLE = "systemctl enable gcr.service gcr-storage.service metadata-server.service"
FINGERPRINT = (_REGISTRY_UNIT, _REGISTRY, _FRONT_UNIT, _CERTIFICATES, ENABLE, Path(__file__).read_text(),
               (HERE / "standins.py").read_text(), (HERE / "gcr.py").read_text(), SERVER.read_text())  # fmt: skip


def write_files(tree: Path, busybox: bytes, hosts: str) -> None:
    """Everything that is put into the image, below a folder."""
    for path, data in _files(busybox, hosts):
        place = tree / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    folder = tree / _TLS.lstrip("/")
    subprocess.run(["sh", "-euc", _CERTIFICATES], cwd=folder, check=True, capture_output=True)
    for trusted in ("/etc/docker/certs.d/gcr.io", "/etc/containers/certs.d/gcr.io"):
        place = tree / trusted.lstrip("/")
        place.mkdir(parents=True)
        (place / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())


def _files(busybox: bytes, hosts: str) -> Iterator[tuple[str, bytes]]:
    units = "/etc/systemd/system"
    yield "/etc/hosts", f"{hosts}127.0.0.1 gcr.io\n".encode()
    yield f"{units}/gcr-storage.service", _REGISTRY_UNIT.encode()
    yield f"{units}/gcr.service", _FRONT_UNIT.encode()
    yield f"{units}/metadata-server.service", SERVER_UNIT.encode()
    yield "/root/metadata_server.py", SERVER.read_bytes()
    yield "/root/tpu-env.yaml", as_yaml(VALUES).encode()
    yield f"{_TLS}/registry.yml", _REGISTRY.encode()
    yield "/usr/local/lib/gcr.py", (HERE / "gcr.py").read_bytes()
    for image in standins.all_of_them(busybox):
        for path, data in standins.in_storage(image):
            yield f"{STORAGE}/{path}", data
        yield f"{ARCHIVES}/{image.repository.rpartition('/')[2]}-{image.tag}.tar", standins.archive(image)
