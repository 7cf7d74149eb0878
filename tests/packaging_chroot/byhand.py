"""What is on an image that was set up by hand, as the documentation of custom images has it?

Re-created from its description; where each thing lies is everybody's own choice, and here a usual one.
"""

from __future__ import annotations

from pathlib import Path

from bench.boot import HOOK as ITS_HOOK
from bench.boot import rules

from .root import Root

HOOK = "/usr/local/bin/tpu-vfio-bind.sh"
_HOOK_SOURCE = Path(__file__).parents[2] / "bench/hook.sh"
_LIMITS = """\
* soft memlock unlimited
* hard memlock unlimited
* soft nofile 100000
* hard nofile 100000
root soft nofile 100000
root hard nofile 100000
"""
_BOOT = """\
#!/bin/bash
grep -q CLOUDSDK_PYTHON /etc/environment || echo CLOUDSDK_PYTHON=/usr/bin/python3 >>/etc/environment
echo GCS_RESOLVE_REFRESH_SECS=60 >>/etc/environment
echo GCS_READ_REQUEST_TIMEOUT_SECS=300 >>/etc/environment
mkdir -p /home/tpu-runtime
curl -s -H 'Metadata-Flavor: Google' \\
    http://metadata.google.internal/computeMetadata/v1/instance/attributes/tpu-env | \\
    sed 's/: /=/' >/home/tpu-runtime/tpu-env
"""
_VBAR_UNIT = """\
[Unit]
After=docker.service

[Service]
ExecStart=/usr/bin/docker run --rm --name vbar --privileged --net=host \\
    gcr.io/cloud-tpu-v2-images/vbar_control_agent:0.0.1 vbar_control_agent --logtostderr --gid= --uid= --chroot=

[Install]
WantedBy=multi-user.target
"""
_ENVIRONMENT = """\
PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CLOUDSDK_PYTHON=/usr/bin/python3
GCS_RESOLVE_REFRESH_SECS=60
GCS_READ_REQUEST_TIMEOUT_SECS=300
GCS_RESOLVE_REFRESH_SECS=60
GCS_READ_REQUEST_TIMEOUT_SECS=300
"""


def set_up_by_hand(root: Root) -> None:
    """All of it, and two boots with it."""
    mine = rules().replace(ITS_HOOK, HOOK) + 'KERNEL=="accel*", MODE="0666"\n'
    root.write("/etc/udev/rules.d/99-tpu-vfio.rules", mine)
    root.write(HOOK, _HOOK_SOURCE.read_bytes(), mode=0o755)
    root.write("/var/lib/cloud/scripts/per-boot/tpu-boot.sh", _BOOT, mode=0o755)
    root.write("/etc/systemd/system/vbar.service", _VBAR_UNIT)
    wants = "/etc/systemd/system/multi-user.target.wants"
    root.shell(f"mkdir -p {wants}; ln -s /etc/systemd/system/vbar.service {wants}")
    root.write("/etc/default/grub", 'GRUB_CMDLINE_LINUX_DEFAULT="quiet"\nGRUB_CMDLINE_LINUX=""\n')
    parameters = "idle=poll intel_iommu=on,sm_on transparent_hugepage=always"
    root.shell(f"sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{parameters} /' /etc/default/grub")
    root.write("/etc/security/limits.conf", _LIMITS)
    root.write("/etc/environment", _ENVIRONMENT)
