"""Which command mends what? Hands: looks, changes nothing.

Each is one line for root's shell, right as it stands: a person copies it, and the tests run it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from tpuagent.host import Host
from tpuagent.image import settings

_REINSTALL = "apt-get install --reinstall tpu-agent"


def restore(host: Host, path: str) -> str:
    """The command: away with what masks it, or the package's own file anew."""
    if path in settings.COPIED_FROM:
        copy = f"cp {settings.COPIED_FROM[path]} {path}"
        return copy + regenerate(host) if path == settings.GRUB_DROP_IN else copy
    mask = settings.SWITCHED_OFF_BY.get(path)
    if mask and host.exists(mask):
        return f"rm {mask}"
    return f"rm {path}; {_REINSTALL}" if host.exists(path) else _REINSTALL


def switched_off(host: Host, path: str) -> bool:
    """Whether the file is deleted, another stands in its place, or nothing is in it."""
    mask = settings.SWITCHED_OFF_BY.get(path)
    return not (host.read(path) or "").strip() or bool(mask and host.exists(mask))


def disable(unit: str, *, running: bool) -> str:
    """Let a unit start no more, and end it where systemd runs."""
    return f"systemctl disable {'--now ' if running else ''}{shlex.quote(unit)}"


def comment_out(origins: Iterable[str]) -> str:
    """Make comments of lines, each named PATH:NUMBER, so that what they said can still be read."""
    numbers: dict[str, list[int]] = {}
    for origin in origins:
        path, _, number = origin.rpartition(":")
        numbers.setdefault(path, []).append(int(number))
    return "; ".join(_edit_lines(path, inside, "s/^/#/") for path, inside in numbers.items())


def delete_lines(path: str, numbers: Iterable[int]) -> str:
    """Take lines out of a file."""
    return _edit_lines(path, numbers, "d")


def _edit_lines(path: str, numbers: Iterable[int], command: str) -> str:
    """Let sed do something to lines of a file; neighbours are one range."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    script = ";".join(f"{first}{command}" if first == last else f"{first},{last}{command}" for first, last in spans)
    return f"sed -i '{script}' {shlex.quote(path)}"


def add_to_list(origin: str, name: str, values: Iterable[str]) -> str:
    """Put more in front of the list `name=...` on a line, named PATH:NUMBER."""
    path, _, number = origin.rpartition(":")
    return f"sed -i '{number}s/{name}=\\(\"\\?\\)/&{','.join(values)},/' {shlex.quote(path)}"


def take_words_out(path: str, names: Iterable[str]) -> str:
    """Take kernel parameters out of a file of GRUB's settings, whatever their values. Longer names stay."""
    begin, value = "(^|[^[:alnum:]_.-])", "=[[:alnum:]_,.:-]*"
    script = ";".join(rf"/^ *#/!s/{begin}{name.replace('_', '[-_]')}{value}/\1/g" for name in names)
    return f"sed -i -E '{script}' {shlex.quote(path)}"


def regenerate(host: Host) -> str:
    """What has to follow an edit of GRUB's settings; nothing in an image without GRUB."""
    return "; update-grub" if host.exists("/usr/sbin/update-grub") else ""


def read_before_ours(path: str) -> str:
    """Give a file of GRUB's settings a name that sorts just before the package's own."""
    folder, _, name = path.rpartition("/")
    return f"mv {shlex.quote(path)} {shlex.quote(f'{folder}/zy-{name}')}"
