"""What kinds of value may a configuration file hold? Fields, and the readers of typed text. Values only.

A reader gets the text as it was typed and whether it stood without quotes; it raises ValueError with a reason that
can follow a key's name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from tpuagent.values import dataclass

Key = tuple[str, ...]
Reader = Callable[[str, bool], Any]
_NODE_MODE_BITS = 0o666
_NO_ID = 2**32 - 1


@dataclass(frozen=True)
class Setting:
    """A value, as it may be typed and as it is used, and where it was typed."""

    typed: str
    value: Any
    origin: str


@dataclass(frozen=True)
class Field:
    """A value that may be set, or a list of such values, and the default as it would be typed."""

    read: Reader
    default: str = ""
    is_list: bool = False


@dataclass(frozen=True)
class MapOf:
    """Names of the writer's own choice, each with such a value, or with such a section.

    `name` is the pattern of a good name, and `example` one of them. `defaults` are there without being set: the key
    below the map, and the value as it would be typed.
    """

    below: Field | Schema
    name: str
    example: str
    defaults: tuple[tuple[Key, str], ...] = ()


Schema = Mapping[str, "Schema | Field | MapOf"]


def read_account(typed: str, _: bool) -> str:
    """A user or a group of users, by name or number. 2^32-1 is none: chown takes it for "leave as it is"."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*\$?", typed):
        return typed
    if re.fullmatch("[0-9]{1,10}", typed) and int(typed) < _NO_ID:
        return typed
    raise ValueError(f"{typed!r} is neither the name of a user or group nor its number")


def read_mode(typed: str, _: bool) -> int:
    """The mode of a device node, in octal as chmod takes it."""
    if not re.fullmatch("0[0-7]{3}", typed) or int(typed, 8) & ~_NODE_MODE_BITS:
        raise ValueError(f'{typed!r} is not a mode of a device node; write four octal digits, like "0666" or "0660"')
    return int(typed, 8)


def read_flag(typed: str, plain: bool) -> bool:
    """true or false, and none of YAML's other words for them."""
    if not plain or typed not in ("true", "false"):
        raise ValueError(f"{typed!r} is not a switch; write true or false")
    return typed == "true"


def read_auto_or_flag(typed: str, plain: bool) -> bool | None:
    """true or false, or None for auto."""
    if plain and typed in ("auto", "true", "false"):
        return None if typed == "auto" else typed == "true"
    raise ValueError(f"{typed!r} is not a switch; write auto, true or false")
