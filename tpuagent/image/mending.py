"""How does a file of the package come back that somebody has switched off? Hands: looks, changes nothing."""

from __future__ import annotations

from tpuagent.host import Host
from tpuagent.image import settings

_REINSTALL = "apt-get install --reinstall tpu-agent"


def restore(host: Host, path: str) -> str:
    """The command: away with what masks it, or the package's own file anew."""
    if path in settings.COPIED_FROM:
        copy = f"cp {settings.COPIED_FROM[path]} {path}"
        return f"{copy}; update-grub" if path == settings.GRUB_DROP_IN else copy
    mask = settings.SWITCHED_OFF_BY.get(path)
    return f"rm {mask}" if mask and host.exists(mask) else _REINSTALL


def switched_off(host: Host, path: str) -> bool:
    """Whether the file is deleted, or another stands in its place."""
    mask = settings.SWITCHED_OFF_BY.get(path)
    return not host.exists(path) or bool(mask and host.exists(mask))
