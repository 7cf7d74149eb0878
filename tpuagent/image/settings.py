"""What does the package set on an image? The list that its files, their tests and the check agree on. Values only."""

from __future__ import annotations

from tpuagent.values import dataclass


@dataclass(frozen=True)
class Limit:
    """A line of limits.d, for sessions that log in. `*` does not cover root."""

    domain: str
    kind: str  # soft or hard
    item: str
    value: str


@dataclass(frozen=True)
class ServiceLimit:
    """What systemd gives a service that says nothing itself; the item is named as in limits.d."""

    item: str
    setting: str
    soft: str
    hard: str


# From Google's documentation of custom images for Cloud TPU VMs: the processor never sleeps, the IOMMU translates in
# scalable mode (v5p and tpu7x do not work without it), and memory comes in huge pages.
KERNEL_PARAMETERS: tuple[tuple[str, str], ...] = (
    ("idle", "poll"),
    ("intel_iommu", "on,sm_on"),
    ("transparent_hugepage", "always"),
)

UNLIMITED = "unlimited"
OPEN_FILES = "100000"
LIMITS = tuple(
    Limit(domain, kind, item, value)
    for domain in ("*", "root")
    for item, value in (("memlock", UNLIMITED), ("nofile", OPEN_FILES))
    for kind in ("soft", "hard")
)

# The hard limit of files is systemd's own: a service that raises its limit by itself must not find it lowered.
SERVICE_LIMITS = (
    ServiceLimit("memlock", "DefaultLimitMEMLOCK", UNLIMITED, UNLIMITED),
    ServiceLimit("nofile", "DefaultLimitNOFILE", OPEN_FILES, "524288"),
)

# Loaded at boot. The first one binds all TPU functions as it is loaded: the modprobe file gives it their ids.
MODULES = ("vfio-pci", "vfio_iommu_type1")
MODULE_PARAMETER = ("vfio-pci", "ids")

# The first two are copies, which an upgrade makes anew unless somebody has changed or deleted them: who deletes one has
# switched it off. The others are switched off by a file of the same
# name in /etc, empty or a link to /dev/null, which stands beside them here.
# GRUB's sorts after what cloud images and others put there, since the kernel takes the last of two equal parameters.
# The one for modprobe sorts before everybody's: of two lines with ids= the last one counts, and ours can do without.
GRUB_DROP_IN = "/etc/default/grub.d/zz-tpu-agent.cfg"
LIMITS_FILE = "/etc/security/limits.d/50-tpu-agent.conf"
SYSTEMD_FILE = "/usr/lib/systemd/system.conf.d/50-tpu-agent.conf"
MODULES_FILE = "/usr/lib/modules-load.d/tpu-agent.conf"
MODPROBE_FILE = "/usr/lib/modprobe.d/00-tpu-agent.conf"
UDEV_FILE = "/usr/lib/udev/rules.d/60-tpu-agent.rules"
COPIED_FROM = {
    GRUB_DROP_IN: "/usr/share/tpu-agent/zz-tpu-agent.cfg",
    LIMITS_FILE: "/usr/share/tpu-agent/50-tpu-agent.conf",
}
SWITCHED_OFF_BY = {
    SYSTEMD_FILE: "/etc/systemd/system.conf.d/50-tpu-agent.conf",
    MODULES_FILE: "/etc/modules-load.d/tpu-agent.conf",
    MODPROBE_FILE: "/etc/modprobe.d/00-tpu-agent.conf",
    UDEV_FILE: "/etc/udev/rules.d/60-tpu-agent.rules",
}
GRUB_CONFIGURATION = "/boot/grub/grub.cfg"


def render_kernel_parameters() -> str:
    """The parameters as they stand on a kernel's command line."""
    return " ".join(f"{name}={value}" for name, value in KERNEL_PARAMETERS)
