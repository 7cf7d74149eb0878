"""What does the configuration want of the metadata? Values, and how the text of each one is read.

The `read_*` functions take a scalar as it was typed, and whether it stands without quotes; a ValueError says what is
wrong with it.
"""

from __future__ import annotations

import os
import string

from tpuagent.values import dataclass

INTERPRETER = "CLOUDSDK_PYTHON"
# What every reader of /etc/environment (PAM, systemd, shells) takes for itself, bare and between double quotes.
_BARE = frozenset(string.ascii_letters + string.digits + "_./:@%+,=-")
_QUOTED = _BARE | frozenset(" ~!&*()[]{}<>;|?^")
_NAME_FIRST = frozenset(string.ascii_letters + "_")
_NAME = _NAME_FIRST | frozenset(string.digits)
# PAM before 1.4 stops reading at a line of 1 KiB, and with it stops everything that stands below.
LONGEST_LINE = 1000
LONGEST_WAIT_S = 90  # the unit's TimeoutStartSec is 120
_WAIT_DIGITS = 2
_MODE_DIGITS = 4


@dataclass(frozen=True)
class TpuEnvPolicy:
    """The `tpu_env` section. `owner` is a user's name or number; `second_path` None: no second output."""

    path: str = "/home/tpu-runtime/tpu-env"
    owner: str = "root"
    mode: int = 0o644
    ready_wait_s: int = 30
    second_path: str | None = None
    aliases: bool = False


@dataclass(frozen=True)
class EnvironmentPolicy:
    """The `environment` section: what /etc/environment should set. `force`: even against another value."""

    wanted: tuple[tuple[str, str], ...] = (
        (INTERPRETER, "/usr/bin/python3"),
        ("GCS_RESOLVE_REFRESH_SECS", "60"),
        ("GCS_REQUEST_CONNECTION_TIMEOUT_SECS", "300"),
        ("GCS_METADATA_REQUEST_TIMEOUT_SECS", "300"),
        ("GCS_READ_REQUEST_TIMEOUT_SECS", "300"),
        ("GCS_WRITE_REQUEST_TIMEOUT_SECS", "600"),
    )
    force: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Policy:
    """Both sections: what the metadata worker follows."""

    tpu_env: TpuEnvPolicy = TpuEnvPolicy()
    environment: EnvironmentPolicy = EnvironmentPolicy()


def is_name(text: str) -> bool:
    """Whether every shell takes this for the name of a variable."""
    return text[:1] in _NAME_FIRST and set(text) <= _NAME if text else False


def read_path(typed: str, _: bool) -> str:
    """An absolute path of a file."""
    # normpath leaves two slashes at the beginning alone.
    if typed.endswith("/") or os.path.normpath("/" + typed.lstrip("/")) != typed or not typed.isprintable():
        raise ValueError(f"{typed!r} is not the absolute path of a file; one looks like /home/tpu-runtime/tpu-env")
    return typed


def read_path_or_off(typed: str, plain: bool) -> str | None:
    """An absolute path, or None for `off`."""
    return None if plain and typed == "off" else read_path(typed, plain)


def read_file_mode(typed: str, _: bool) -> int:
    """A mode that lets the owner read and lets nobody execute."""
    if (
        len(typed) != _MODE_DIGITS
        or set(typed) - set(string.octdigits)
        or int(typed, 8) & ~0o666
        or not int(typed, 8) & 0o400
    ):
        raise ValueError(f'{typed!r} is not a mode of a file to read; write four octal digits, like "0644" or "0640"')
    return int(typed, 8)


def read_wait_s(typed: str, _: bool) -> int:
    """Whole seconds, none at all included."""
    if not (typed.isascii() and typed.isdecimal()) or len(typed) > _WAIT_DIGITS or int(typed) > LONGEST_WAIT_S:
        raise ValueError(f"{typed!r} is not a number of seconds from 0 to {LONGEST_WAIT_S}")
    return int(typed)


def read_name(typed: str, _: bool) -> str:
    """The name of a variable."""
    if not is_name(typed):
        raise ValueError(f"{typed!r} is not the name of a variable: letters, digits and _, and no digit first")
    return typed


def read_value_or_null(typed: str, plain: bool) -> str | None:
    """The value of a variable, as typed; None for `null`: the agent leaves the variable alone."""
    if plain and typed in ("", "null", "~"):
        return None
    if bad := set(typed) - _QUOTED:
        raise ValueError(
            f"{typed!r} has {min(bad)!r}, which the readers of /etc/environment do not agree about;"
            " write null if the agent is to leave the variable alone"
        )
    if len(typed) > LONGEST_LINE // 2:
        raise ValueError(f"is longer than {LONGEST_LINE // 2} characters")
    return typed


def environment_policy(
    typed: dict[str, str | None], force: frozenset[str] = frozenset(), base: EnvironmentPolicy = EnvironmentPolicy()
) -> EnvironmentPolicy:
    """The defaults with what a configuration adds, changes (a value) or takes away (None)."""
    merged = {**dict(base.wanted), **typed}
    return EnvironmentPolicy(tuple((name, value) for name, value in merged.items() if value is not None), force)


def render_line(name: str, value: str) -> str:
    """One line that PAM, systemd and shells read alike."""
    return f"{name}={value}" if value and set(value) <= _BARE else f'{name}="{value}"'
