"""What does an editor make of a configuration? YAML 1.2, as language servers read it, and the schema on that."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator, ValidationError, validators
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

SCHEMA = json.loads((Path(__file__).parents[1] / "docs/schema.json").read_text())
_CORE = (
    ("|~|null|Null|NULL", lambda _: None),
    ("true|True|TRUE", lambda _: True),
    ("false|False|FALSE", lambda _: False),
    ("[-+]?[0-9]+", int),
    ("0x[0-9a-fA-F]+", lambda text: int(text, 16)),
    ("0o[0-7]+", lambda text: int(text, 8)),
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", float),
)


def sees(text: str) -> Any:
    """The values of the text by YAML's core schema."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return None if node is None else _value(node)


def _value(node: Node) -> Any:
    if isinstance(node, MappingNode):
        return {key.value: _value(below) for key, below in node.value}
    if isinstance(node, SequenceNode):
        return [_value(item) for item in node.value]
    assert isinstance(node, ScalarNode)
    if node.style is None:
        for pattern, read in _CORE:
            if re.fullmatch(pattern, node.value):
                return read(node.value)
    return node.value


def as_python(pattern: str) -> str:
    """In JavaScript, `$` is the end; in Python, it may stand before a last line end too."""
    return re.sub(r"(?<!\\)\$", r"\\Z", pattern)


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not re.search(as_python(pattern), instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


_VALIDATOR = validators.extend(Draft7Validator, {"pattern": _pattern})(SCHEMA)  # type: ignore[no-untyped-call]


def faults(text: str) -> list[str]:
    """What the editor underlines."""
    return [fault.message for fault in _VALIDATOR.iter_errors(sees(text))]
