"""How is an editor told of the configuration? A JSON schema, of the draft that language servers for YAML know best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from manual.described import default, kind, value, words
from manual.keys import KEYS, NAMED, PARTS
from manual.kinds import Kind
from manual.prose import UNSEEN_BEGINS
from tpuagent import config
from tpuagent.schema import Field, MapOf, Schema

Typed = Mapping[tuple[str, ...], str]
_NONE: Typed = {}


def render() -> str:
    """The schema, as the file that is installed."""
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Configuration of tpu-agent",
        "$comment": UNSEEN_BEGINS,
        **_any(config.SCHEMA, "", _NONE),
    }
    return json.dumps(whole, indent=2) + "\n"


def _any(below: Schema | Field | MapOf, path: str, defaults: Typed) -> dict[str, Any]:
    """`defaults`: those of a map that this is an entry of, by their keys below this one."""
    what = PARTS[path].what if path in PARTS else KEYS.get(path, "")
    if isinstance(below, Field):
        described = _described(f"{what} Value: {words(below)}.")
        typed = defaults.get((), default(below))
        of = {"type": "array", "items": _of(kind(below))} if below.is_list else _of(kind(below))
        # An entry of a map that is not there without being named has no default.
        return {**described, **of, **({"default": value(typed)} if typed else {})}
    # A key with nothing below it, as everything there is a comment, is a key all the same.
    section = {**_described(what), "type": ["object", "null"]}
    if isinstance(below, MapOf):
        known = {**dict(below.defaults), **defaults}
        path = f"{path}.{NAMED.get(path, 'NAME')}"
        named = {name: _any(below.below, path, _under(known, name)) for name in dict.fromkeys(key[0] for key in known)}
        names = {"propertyNames": {"pattern": f"^({below.name})$"}}
        return {**section, **names, "properties": named, "additionalProperties": _any(below.below, path, _NONE)}
    named = {name: _any(one, f"{path}.{name}" if path else name, _under(defaults, name)) for name, one in below.items()}
    return {**section, "properties": named, "additionalProperties": False}


def _of(one: Kind) -> Mapping[str, Any]:
    """With what the editor is to say instead of the expression; a word of the language servers' own."""
    said = f"Not taken. Value: {one.words}.".replace("`", "")
    return {**one.json, "patternErrorMessage": said} if "pattern" in one.json else one.json


def _described(what: str) -> dict[str, str]:
    return {"description": what.strip().replace("`", "")} if what else {}


def _under(defaults: Typed, name: str) -> Typed:
    return {key[1:]: typed for key, typed in defaults.items() if key[0] == name}
