"""How is the configuration told to man? As mdoc, for tpu-agent.yaml(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from manual.described import built_in, keys, variables, words
from manual.keys import PARTS
from manual.prose import SCHEMA_PATH, TOPICS, UNSEEN, UNSEEN_BEGINS, paragraphs
from tpuagent import config
from tpuagent.configfiles import CONFIG_FILE, DROP_IN_FOLDER
from tpuagent.schema import Field, MapOf

_HEAD = """\
.\\" Made by "make docs" of what stands in manual/ and of the readers' tables.
.Dd December 1, 2026
.Dt TPU-AGENT.YAML 5
.Os
.Sh NAME
.Nm tpu-agent.yaml
.Nd configuration of the agent for TPU virtual machines
.Sh DESCRIPTION
How the agent is configured: files, values and then every key."""
_FILES = {
    f"{CONFIG_FILE} , {DROP_IN_FOLDER}/*.yaml": "The configuration.",
    "/usr/share/tpu-agent/config.yaml": "The first of these files as it is installed.",
    SCHEMA_PATH: "The JSON schema.",
}


def render() -> str:
    """The manual page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for title, topic in TOPICS.items():
        yield f".Ss {title}"
        yield from _paragraphs(paragraphs(topic))
    for name in PARTS:
        yield f".Ss Keys: {name}"
        yield from _part(name)
    yield ".Ss What an editor cannot tell"
    yield from _text(UNSEEN_BEGINS)
    yield ".Bl -bullet"
    for one in UNSEEN:
        yield ".It"
        yield from _text(one.what)
        yield from _example(one.example)
    yield ".El"
    yield ".Sh FILES"
    yield ".Bl -tag -width Ds"
    for path, what in _FILES.items():
        yield f".It Pa {path}"
        yield what
    yield ".El"
    yield ".Sh EXAMPLES"
    for part in PARTS.values():
        yield from _example(part.example)
    yield ".Sh SEE ALSO"
    yield ".Xr tpuagent 8"


def _part(name: str) -> Iterator[str]:
    schema = config.SCHEMA[name]
    yield from _text(PARTS[name].what)
    if isinstance(schema, Field):
        yield from _text(f"Value: {words(schema)}. Default: `{schema.default}`.")
    elif isinstance(schema, MapOf) and isinstance(schema.below, Field):
        yield from _text(f"Value of each: {words(schema.below)}. What is set without being named:")
        yield from _example(variables())
    else:
        yield ".Bl -tag -width Ds"
        for key in keys(name):
            yield f".It Li {_literal(key.path)}"
            yield from _text(f"{key.what} Value: {key.values}. Default: `{key.default}`.")
        yield ".El"
        if isinstance(schema, MapOf):
            yield ".Pp"
            yield from _text("These are the defaults of any container. `vbar` and `telemetry` differ in these:")
            yield from _example(built_in())


def _paragraphs(some: list[str]) -> Iterator[str]:
    after_text = False
    for paragraph in some:
        if paragraph.startswith("    "):
            yield from _example(paragraph.strip())
        else:
            # Behind an example there is a line already.
            yield from [".Pp"] if after_text else []
            yield from _text(paragraph)
        after_text = True


def _example(text: str) -> Iterator[str]:
    yield ".Bd -literal -offset indent"
    yield from (_plain(line) for line in text.splitlines())
    yield ".Ed"


def _text(text: str) -> Iterator[str]:
    """A line for each sentence, as man wants it, and one for each piece of code, with the signs that touch it."""
    for sentence in re.split(r"(?<=[.:]) (?=[^a-z])", text):
        pieces = re.split(r"(?:(?<= )|^)(\(?`[^`]*`[.,:;)]*)(?= |$)", sentence)
        for piece in filter(str.strip, pieces):
            found = re.fullmatch(r"(\(?)`([^`]*)`([.,:;)]*)", piece)
            if found:
                yield " ".join((".Li", *found[1], _literal(found[2]), *found[3]))
            else:
                yield _plain(piece.strip())


def _plain(text: str) -> str:
    text = text.replace("\\", "\\e").replace("`", "")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def _literal(text: str) -> str:
    """One argument of a macro, in which nothing is taken for a macro or a delimiter."""
    text = text.replace("\\", "\\e").replace('"', "\\(dq").replace("'", "\\(aq").replace("-", "\\-")
    return f'"\\&{text}"' if " " in text or len(text) < len("name") else text
