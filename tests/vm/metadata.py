"""The metadata server as a unit of a guest, changed from outside, and what readers there make of tpu-env."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it boots images, and what is here is put into some
    from .guest import Guest

PATH = "/home/tpu-runtime/tpu-env"
KEY = "instance/attributes/tpu-env"
URL = "http://169.254.169.254/computeMetadata/v1"
VALUES = {"TPU_ACCELERATOR_TYPE": "v6e-8", "TPU_WORKER_ID": "0", "TOPOLOGY": "2x4", "INJECT_SLICE_BUILDER_FAULT": ""}
READ = "/var/lib/workload-environment"
SERVER = Path(__file__).parents[1] / "fakes/metadata_server.py"
_ADDRESS = "169.254.169.254/32 dev lo"
SERVER_UNIT = f"""\
[Service]
ExecStartPre=/usr/sbin/ip address replace {_ADDRESS}
ExecStart=/usr/bin/python3 /root/metadata_server.py --address 169.254.169.254 --port 80 --tpu-env /root/tpu-env.yaml

[Install]
WantedBy=multi-user.target
"""
# A job as the documentation has it, that keeps what it was started with.
_WORKLOAD_UNIT = f"""\
[Unit]
Wants=tpu-agent.service
After=tpu-agent.service

[Service]
Type=oneshot
EnvironmentFile={PATH}
ExecStart=/usr/bin/env -0
StandardOutput=truncate:{READ}
RemainAfterExit=yes

[Install]
WantedBy=multi-user.target
"""


def as_yaml(values: Mapping[str, str]) -> str:
    """The attribute as the server has it."""
    return "".join(f"{name}: '{value}'\n" for name, value in values.items())


def install_server(guest: Guest) -> None:
    """Have a unit of the server, and one of a job; neither is started."""
    guest.put(SERVER, "/root/metadata_server.py")
    guest.write("/root/tpu-env.yaml", as_yaml(VALUES))
    guest.write("/etc/systemd/system/metadata-server.service", SERVER_UNIT)
    guest.write("/etc/systemd/system/workload.service", _WORKLOAD_UNIT)
    guest.check(["systemctl", "daemon-reload"])


def set_tpu_env(guest: Guest, values: Mapping[str, str]) -> float:
    """Change the attribute; the moment before that by the guest's clock."""
    return set_document(guest, as_yaml(values))


def set_document(guest: Guest, text: str) -> float:
    """Change the attribute to any text; the moment before that by the guest's clock."""
    return float(guest.check(f"date +%s.%N; exec curl -sf -X PUT --data-binary @- {URL}/{KEY}", input=text))


def read_by_shell(guest: Guest, shell: str, folder: str) -> dict[str, str]:
    """What a program finds that a shell starts after it has sourced the file."""
    script = f"cd {folder}; set -e; set -a; . {PATH}; exec env -0"
    return _parse(guest.check(["env", "-i", "PATH=/usr/bin:/bin", shell, "-c", script]))


def read_by_unit(guest: Guest, *, again: bool = True) -> dict[str, str]:
    """What the job was started with; `again`: let it start once more."""
    if again:
        guest.check(["systemctl", "restart", "workload.service"])
    return _parse(guest.read(READ))


def _parse(shown: str) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in shown.split("\0") if entry)
