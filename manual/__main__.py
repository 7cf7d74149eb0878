"""Writes what is made of the description: python3 -m manual FOLDER. `make docs` does it in docs/."""

from __future__ import annotations

import sys
from pathlib import Path

from manual import json_schema, markdown, mdoc

FILES = {
    "configuration.md": markdown.render,
    "tpu-agent.yaml.5": mdoc.render,
    "schema.json": json_schema.render,
}

if __name__ == "__main__":
    for name, render in FILES.items():
        Path(sys.argv[1], name).write_text(render(), encoding="utf-8")
