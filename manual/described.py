"""Which keys are there, with what default, kind and meaning? The readers' own tables, joined with the descriptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from manual.keys import KEYS, NAMED
from manual.kinds import KINDS, Kind
from tpuagent import config
from tpuagent.containers.spec import BUILT_IN
from tpuagent.containers.typed import render_typed
from tpuagent.schema import Field, MapOf, Schema


@dataclass(frozen=True)
class Key:
    """One key. `name` is what a person types, without what it stands below; `values` are words for what it takes."""

    path: str
    name: str
    what: str
    values: str
    default: str


def keys(part: str) -> Iterator[Key]:
    """The keys below one at the top, in the order in which `tpuagent config` prints them."""
    schema = config.SCHEMA[part]
    if isinstance(schema, MapOf) and not isinstance(schema.below, Field):
        yield from _keys(f"{part}.{NAMED[part]}", schema.below)
    elif not isinstance(schema, Field | MapOf):
        yield from _keys(part, schema)


def _keys(path: str, schema: Schema) -> Iterator[Key]:
    for name, below in schema.items():
        full = f"{path}.{name}"
        yield Key(full, name, KEYS[full], words(below), default(below))


def words(below: Schema | Field | MapOf) -> str:
    """What may stand there."""
    if isinstance(below, Field):
        return f"list of {kind(below).many}" if below.is_list else kind(below).words
    if isinstance(below, MapOf) and isinstance(below.below, Field):
        return f"map of names, each with: {kind(below.below).words}"
    raise TypeError(below)


def default(below: Schema | Field | MapOf) -> str:
    """As it would be typed."""
    if isinstance(below, Field):
        return below.default
    if isinstance(below, MapOf):
        return "{" + ", ".join(f"{key[-1]}: {typed}" for key, typed in below.defaults) + "}"
    raise TypeError(below)


def kind(field: Field) -> Kind:
    return KINDS[field.read]


def value(typed: str) -> Any:
    """What an editor takes a typed default for: not what PyYAML does, for which `off` is false."""
    if typed[:1] in ("[", "{"):
        return yaml.safe_load(typed)
    try:
        return json.loads(typed)
    except ValueError:
        return typed


def built_in() -> str:
    """The containers that are there without being named, as far as they are not like any other, as a file."""
    usual = {key.name: key.default for key in keys("containers")}
    lines = ["containers:"]
    for spec in BUILT_IN:
        lines.append(f"  {spec.name}:")
        for key, typed in render_typed(spec):
            if len(key) == 1 and usual[key[0]] != typed:
                lines += _setting(key[0], typed)
    return "\n".join(lines) + "\n"


def _setting(name: str, typed: str) -> Iterator[str]:
    if typed[0] != "[":
        yield f"    {name}: {typed}"
        return
    yield f"    {name}:"
    yield from (f"      - {json.dumps(word) if '{' in word else word}" for word in value(typed))


def variables() -> str:
    """The defaults of `environment`, as a file."""
    schema = config.SCHEMA["environment"]
    assert isinstance(schema, MapOf)  # noqa: S101  (for the type checker)
    return "environment:\n" + "".join(f"  {key[-1]}: {typed}\n" for key, typed in schema.defaults)
