"""How does every command print JSON and errors?"""

from __future__ import annotations

import sys


def print_json(what: object) -> None:
    """On standard output, for people and programs."""
    import json  # with it comes re, and most of what is printed is text

    print(json.dumps(what, indent=2))


def print_error(what: object) -> None:
    """On standard error, in one line that says who speaks."""
    print(f"tpuagent: {what}", file=sys.stderr)
