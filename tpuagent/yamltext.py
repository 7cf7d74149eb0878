"""What does a YAML text set, and where? Text becomes settings; an error names file, line and key. Pure.

Scalars are taken as they are typed, so that YAML bends nothing: 0000:00:04.0 is no number here and `no` no switch.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tpuagent.errors import ConfigError
from tpuagent.schema import Field, Key, MapOf, Reader, Schema, Setting
from tpuagent.values import dataclass


def parse_settings(text: str, path: str, schema: Schema) -> Iterator[tuple[Key, Setting]]:
    """The settings of one file, each with its key's full path."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark
        if "'\\t'" in (fault.problem or ""):
            fault.context, fault.problem = None, "a tab stands here, and YAML is indented with spaces"
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ConfigError(f"read {path}", where + ", ".join(filter(None, (fault.context, fault.problem)))) from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as fault:
        raise ConfigError(f"read {path}", " ".join(str(fault).split())) from None
    if root is not None:
        yield from _walk(_Place(path, ()), root, schema)


@dataclass(frozen=True)
class _Place:
    """Where in which file the walk is."""

    path: str
    key: Key

    def fault(self, node: Node, why: str) -> ConfigError:
        name = ".".join(key if key.isprintable() else ascii(key) for key in self.key)
        return ConfigError(f"read {self.path}", f"line {node.start_mark.line + 1}: {name}{': ' if name else ''}{why}")

    def below(self, name: str) -> _Place:
        return _Place(self.path, (*self.key, name))


def _walk(place: _Place, node: Node, schema: Any) -> Iterator[tuple[Key, Setting]]:
    if not isinstance(schema, Field):
        for name, key_node, value_node in _entries(place, node):
            if isinstance(schema, MapOf):
                if not re.fullmatch(schema.name, name):
                    raise place.below(name).fault(key_node, f"is not a name; one looks like {schema.example}")
                below: Any = schema.below
            else:
                below = schema.get(name)
            if below is None:
                raise place.below(name).fault(key_node, "is no key of the agent's" + _meant(name, schema))
            yield from _walk(place.below(name), value_node, below)
        return
    typed, value = (_items if schema.is_list else _scalar)(place, node, schema.read)
    yield place.key, Setting(typed, value, f"{place.path}:{node.start_mark.line + 1}")


def _entries(place: _Place, node: Node) -> Iterator[tuple[str, Node, Node]]:
    if isinstance(node, ScalarNode) and node.value == "" and node.style is None:
        return  # everything that stood below it is commented out
    if not isinstance(node, MappingNode):
        raise place.fault(node, "keys with values are expected here, like 'mode: \"0666\"'")
    seen: dict[str, int] = {}
    for key_node, value_node in node.value:
        name = key_node.value if isinstance(key_node, ScalarNode) else "?"
        line = key_node.start_mark.line + 1
        if name in seen:
            raise place.below(name).fault(key_node, f"stands here for the second time, first on line {seen[name]}")
        seen[name] = line
        yield name, key_node, value_node


def _items(place: _Place, node: Node, read: Reader) -> tuple[str, Any]:
    if not isinstance(node, SequenceNode):
        raise place.fault(node, "a list is expected here, in brackets: [one, two]")
    pairs = [_scalar(place, item, read) for item in node.value]
    return "[" + ", ".join(typed for typed, _ in pairs) + "]", tuple(value for _, value in pairs)


def _scalar(place: _Place, node: Node, read: Reader) -> tuple[str, Any]:
    if not isinstance(node, ScalarNode):
        raise place.fault(node, "one value is expected here, not a list or keys")
    try:
        plain = node.style is None
        # A JSON text is a quoted scalar of YAML too.
        return node.value if plain else json.dumps(node.value, ensure_ascii=False), read(node.value, plain)
    except ValueError as fault:
        raise place.fault(node, str(fault)) from None


def _meant(name: str, schema: Mapping[str, Any]) -> str:
    sections = [section for section, fields in schema.items() if isinstance(fields, Mapping) and name in fields]
    if sections:
        return f" here; it belongs below '{sections[0]}:', which may still be commented out"
    close = difflib.get_close_matches(name, schema, n=1)
    return f"; did you mean {close[0]}?" if close else f"; the keys here are: {', '.join(schema)}"
