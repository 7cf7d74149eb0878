"""How is the configuration told on a page? Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from manual.described import built_in, keys, variables, words
from manual.keys import PARTS
from manual.prose import TOPICS, UNSEEN, UNSEEN_BEGINS, paragraphs
from tpuagent import config
from tpuagent.schema import Field, MapOf

_WIDTH = 115
_MADE = "<!-- Made by `make docs` of what stands in manual/ and of the readers' tables. -->"


def render() -> str:
    """The page."""
    return "\n\n".join(map(_wrapped, _blocks())) + "\n"


def _wrapped(block: str) -> str:
    """A paragraph in lines of this project's width; what has lines of its own keeps them."""
    if "\n" in block or block.startswith("#"):
        return block
    return textwrap.fill(block, _WIDTH, break_on_hyphens=False, break_long_words=False)


def _blocks() -> Iterator[str]:
    yield f"{_MADE}\n# Configuration"
    yield "How the agent is configured: files, values and then every key. `man 5 tpu-agent.yaml` says the same."
    links = [*TOPICS, *PARTS, "What an editor cannot tell"]
    yield "\n".join(f"* [{title}](#{title.lower().replace(',', '').replace(' ', '-')})" for title in links)
    for title, topic in TOPICS.items():
        yield f"## {title}"
        for paragraph in paragraphs(topic):
            yield f"```\n{paragraph.strip()}\n```" if paragraph.startswith("    ") else paragraph
    for name, part in PARTS.items():
        yield f"## {name}"
        yield part.what
        yield from _table(name)
        yield "For example:"
        yield f"```yaml\n{part.example}```"
    yield "## What an editor cannot tell"
    yield UNSEEN_BEGINS
    yield "\n".join(
        f"* {one.what}\n\n  ```yaml\n" + "".join(f"  {line}\n" for line in one.example.splitlines()) + "  ```"
        for one in UNSEEN
    )


def _table(name: str) -> Iterator[str]:
    schema = config.SCHEMA[name]
    if isinstance(schema, Field):
        yield f"Value: {words(schema)}. Default: `{schema.default}`."
    elif isinstance(schema, MapOf) and isinstance(schema.below, Field):
        yield f"Value of each: {words(schema.below)}. What is set without being named:"
        yield f"```yaml\n{variables()}```"
    else:
        rows = [("key", "what it means", "value", "default"), ("---", "---", "---", "---")]
        rows += [(f"`{key.name}`", key.what, key.values, f"`{key.default}`") for key in keys(name)]
        yield "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows)
        if isinstance(schema, MapOf):
            yield "These are the defaults of any container. `vbar` and `telemetry` differ from it in these:"
            yield f"```yaml\n{built_in()}```"
