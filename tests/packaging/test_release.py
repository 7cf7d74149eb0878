"""Do the places agree that say which version this is and what it needs?"""

from __future__ import annotations

import re
from pathlib import Path

import tpuagent

ROOT = Path(__file__).parents[2]


def read(path: str) -> str:
    return (ROOT / path).read_text()


def found(pattern: str, text: str) -> tuple[str, ...]:
    match = re.search(pattern, text, re.MULTILINE)
    assert match, pattern
    return match.groups()


def pins(text: str) -> dict[str, str]:
    return {name.lower(): version for name, version in re.findall(r"^\W*([\w-]+)[>=]=([\d.]+)", text, re.MULTILINE)}


def test_the_package_and_both_changelogs_name_the_same_version_and_agree_on_whether_it_is_out() -> None:
    version, state = found(r"^## \[([\d.]+)\] - (.+)$", read("CHANGELOG.md"))
    debian_version, suite = found(r"^tpu-agent \(([\d.]+)\) (\w+);", read("packaging/debian/changelog"))
    assert version == debian_version == tpuagent.__version__
    assert (state == "Unreleased") == (suite == "UNRELEASED")


def test_the_lowest_versions_that_are_tested_are_the_lowest_that_are_promised() -> None:
    (promised,) = found(r"^dependencies = \[([^]]+)\]", read("pyproject.toml"))
    assert pins(promised) == pins(read("packaging/constraints-lowest.txt"))
