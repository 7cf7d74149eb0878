"""What stands in docs/examples, as values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hcl2
import yaml

EXAMPLES = Path(__file__).parents[1] / "docs/examples"


def template() -> dict[str, Any]:
    """The Packer template."""
    with (EXAMPLES / "tpu-agent.pkr.hcl").open() as file:
        found: dict[str, Any] = _plain(hcl2.load(file))
    return found


def provisioners() -> list[tuple[str, dict[str, Any]]]:
    """Kind and body of each, in their order."""
    (build,) = template()["build"]
    return [pair for one in build["provisioner"] for pair in one.items()]


def user_data() -> dict[str, Any]:
    """cloud-init's file."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "user-data.yaml").read_text())
    return found


def _plain(parsed: Any) -> Any:
    """Without the parser's own notes, and strings as the text that they stand for."""
    if isinstance(parsed, dict):
        return {_plain(key): _plain(value) for key, value in parsed.items() if not key.startswith("__")}
    if isinstance(parsed, list):
        return [_plain(item) for item in parsed]
    if isinstance(parsed, str) and parsed.startswith('"'):
        return parsed[1:-1].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
    return parsed
