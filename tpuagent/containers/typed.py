"""How is a container's setting read as it was typed, and how would it be typed? Pure.

A reader raises ValueError with a reason that can follow a key's name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

from tpuagent.containers.references import parse_reference
from tpuagent.containers.spec import UNLIMITED, Mount, Spec, Ulimit

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
# As many digits as fit into the engine's signed 64 bits, whatever they are.
_SIZE = "[1-9][0-9]{0,17}|[1-9][0-9]{0,14}k|[1-9][0-9]{0,11}m|[1-9][0-9]{0,8}g"
_LEAST_MEMORY = 6 * 1024**2  # what Docker takes
_MOST = 2**63 - 1
_PORTS = range(1, 65536)
LIMITS = (
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio",
    "rttime", "sigpending", "stack",
)  # fmt: skip


def read_text(typed: str, _: bool) -> str:
    """Anything that can be one argument of a command."""
    if "\0" in typed:
        raise ValueError("has a NUL character in it")
    return typed


def read_value(typed: str, plain: bool) -> str | None:
    """The value of a variable, None for null: not set. A bare word that YAML has another meaning for is refused."""
    if plain and typed in ("null", "~", ""):
        return None
    if plain and typed.lower() in ("yes", "no", "on", "off", "true", "false", "y", "n"):
        raise ValueError(f'put it in quotes, since YAML has another meaning for the bare word: "{typed}"')
    return read_text(typed, plain)


def read_image(typed: str, _: bool) -> str:
    """The name of an image; empty: the container is switched off."""
    if typed:
        parse_reference(typed)
    return typed


def read_mount(typed: str, _: bool) -> Mount:
    """SOURCE:TARGET or SOURCE:TARGET:ro, both absolute."""
    source, target, mode = (*typed.split(":"), "", "")[:3] if typed.count(":") in (1, 2) else ("", "", "")
    paths = _is_path(source) and _is_path(target)
    if not paths or mode not in ("", "ro", "rw") or target == "/" or "\0" in typed:
        raise ValueError(f"{typed!r} is not a mount; one looks like /etc/telemetry/config.yaml:/etc/config.yaml:ro")
    return Mount(source, target, mode == "ro")


def read_network(typed: str, _: bool) -> str:
    """Whose network it is in."""
    if typed not in ("host", "bridge", "none"):
        raise ValueError(f"{typed!r} is not a network; write host, bridge or none")
    return typed


def read_memory(typed: str, plain: bool) -> int | None:
    """An amount of memory, None for off."""
    if plain and typed == "off":
        return None
    size = _size(typed)
    if size < _LEAST_MEMORY:
        raise ValueError(f"{typed!r} is less than an engine takes, which is 6m")
    return size


def read_cpus(typed: str, plain: bool) -> float | None:
    """A number of processors, None for off."""
    if plain and typed == "off":
        return None
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", typed) or not float(typed):
        raise ValueError(f"{typed!r} is not a number of processors; write one like 2 or 0.5, or off")
    return float(typed)


def read_ulimit(typed: str, plain: bool) -> Ulimit | None:
    """A limit for both, or SOFT:HARD; None for null: as the engine has it."""
    if plain and typed in ("null", "~", ""):
        return None
    soft, colon, hard = typed.partition(":")
    limit = Ulimit(_limit(soft, typed), _limit(hard if colon else soft, typed))
    if limit.hard != UNLIMITED and not UNLIMITED < limit.soft <= limit.hard:
        raise ValueError(f"{typed!r} has a soft limit above the hard one")
    return limit


def read_log_size(typed: str, plain: bool) -> int:
    """The size at which a log begins a new file, 0 for off."""
    return 0 if plain and typed == "off" else _size(typed)


def read_log_files(typed: str, _: bool) -> int:
    """How many files of log are kept."""
    if not re.fullmatch("[1-9][0-9]{0,2}", typed):
        raise ValueError(f"{typed!r} is not a number of files from 1 to 999")
    return int(typed)


def read_probe(typed: str, plain: bool) -> int | None:
    """The port that a container listens on when it is ready, None for off."""
    if plain and typed == "off":
        return None
    kind, _, port = typed.partition(":")
    if kind != "tcp" or not re.fullmatch("[0-9]{1,5}", port) or int(port) not in _PORTS:
        raise ValueError(f"{typed!r} is not a probe; write one like tcp:8353, or off")
    return int(port)


def read_pull(typed: str, _: bool) -> str:
    """When an image is pulled."""
    if typed not in ("missing", "always", "never"):
        raise ValueError(f"{typed!r} is not a pull policy; write missing, always or never")
    return typed


def read_grace_s(typed: str, _: bool) -> int:
    """Seconds between the request to end and the kill."""
    if not re.fullmatch("[0-9]{1,3}", typed) or int(typed) > 300:  # noqa: PLR2004  stated in the reason
        raise ValueError(f"{typed!r} is not a number of seconds from 0 to 300")
    return int(typed)


def read_unit_name(typed: str, _: bool) -> str:
    """The name of a unit (without .service), a container or a snap."""
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9_.@-]{0,100}", typed):
        raise ValueError(f"{typed!r} is not the name of a unit, a container or a snap")
    return typed


def read_socket(typed: str, plain: bool) -> str | None:
    """The path of an engine's socket, None for auto."""
    if plain and typed == "auto":
        return None
    if not _is_path(typed) or typed == "/" or not typed.isprintable():
        raise ValueError(f"{typed!r} is not the path of a socket; one looks like /run/docker.sock; or write auto")
    return typed


# Showing ----------------------------------------------------------------------------------------------------------


def render_typed(spec: Spec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every setting of a container, by its key below the container's name, as it would be typed."""
    yield ("enabled",), _flag(spec.enabled)
    yield ("image",), _quoted(spec.image) if not spec.image else spec.image
    yield ("required",), _flag(spec.required)
    yield ("needs_devices",), _flag(spec.needs_devices)
    yield ("command",), _list(map(_quoted, spec.command))
    yield ("uid",), _quoted(spec.uid)
    yield ("gid",), _quoted(spec.gid)
    yield ("chroot",), _quoted(spec.chroot)
    for name, value in spec.env:
        yield ("env", name), _quoted(value)
    yield ("mounts",), _list(map(str, spec.mounts))
    yield ("privileged",), _flag(spec.privileged)
    yield ("network",), spec.network
    yield ("memory",), "off" if spec.memory is None else str(spec.memory)
    yield ("cpus",), "off" if spec.cpus is None else f"{spec.cpus:g}"
    for name, limit in spec.ulimits:
        yield ("ulimits", name), str(limit)
    yield ("log_max_size",), _render_size(spec.log_max_bytes) if spec.log_max_bytes else "off"
    yield ("log_max_files",), str(spec.log_max_files)
    yield ("probe",), "off" if spec.probe_port is None else f"tcp:{spec.probe_port}"
    yield ("pull",), spec.pull
    yield ("stop_grace_s",), str(spec.stop_grace_s)
    yield ("conflicts",), _list(spec.conflicts)


def _is_path(typed: str) -> bool:
    """An absolute one without detours. normpath leaves two slashes at the beginning alone."""
    return os.path.normpath("/" + typed.lstrip("/")) == typed


def _limit(typed: str, whole: str) -> int:
    if typed == "unlimited":
        return UNLIMITED
    if not re.fullmatch("[0-9]{1,19}", typed) or int(typed) > _MOST:
        raise ValueError(f"{whole!r} is not a limit; write unlimited, a number, or SOFT:HARD")
    return int(typed)


def _size(typed: str) -> int:
    if not re.fullmatch(_SIZE, typed):
        raise ValueError(f"{typed!r} is not a size; write a number of bytes, or one like 512m or 2g")
    digits = typed.rstrip("kmg")
    return int(digits) * _UNITS[typed[len(digits) :]]


def _render_size(size: int) -> str:
    for letter, unit in reversed(_UNITS.items()):
        if size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def _flag(on: bool) -> str:
    return "true" if on else "false"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a JSON text is a quoted scalar of YAML too


def _list(words: Iterator[str] | tuple[str, ...]) -> str:
    return f"[{', '.join(words)}]"
