"""Do the page, the manual and the schema tell of exactly the keys that the readers take?"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from manual.__main__ import FILES
from manual.keys import KEYS, NAMED, PARTS
from manual.kinds import KINDS
from manual.prose import SCHEMA_PATH
from tests.editor import SCHEMA, faults
from tpuagent import config
from tpuagent.containers.spec import Policy as ContainerPolicy
from tpuagent.containers.spec import Spec
from tpuagent.devices.policy import Policy
from tpuagent.host import Host
from tpuagent.metadata.policy import Policy as MetadataPolicy
from tpuagent.schema import Field, MapOf, Schema

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/configuration.md"
MANUAL = ROOT / "docs/tpu-agent.yaml.5"
EXAMPLES = {
    "docs/configuration.md": r"^```yaml\n(.*?)^```",
    "README.md": r"^```yaml\n(.*?)^```",
    "docs/tpuagent.8": r"^\.Bd -literal -offset indent\n((?:containers|devices):\n.*?)^\.Ed",
    "docs/tpu-agent.yaml.5": r"^\.Bd -literal -offset indent\n([a-z_]+:.*?)^\.Ed",
}


def fields(below: Schema | Field | MapOf, path: str = "") -> Iterator[tuple[str, Field]]:
    """Every field of the readers, by the path that the description has for it."""
    if isinstance(below, Field):
        yield path, below
    elif isinstance(below, MapOf):
        name = "" if isinstance(below.below, Field) else f".{NAMED[path]}"
        yield from fields(below.below, path + name)
    else:
        for name, one in below.items():
            yield from fields(one, f"{path}.{name}" if path else name)


FIELDS = dict(fields(config.SCHEMA))


# The files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_a_committed_file_is_what_the_description_makes(name: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-B", "-m", "manual", tmp_path], cwd=ROOT, check=True, timeout=60)
    assert (tmp_path / name).read_bytes() == (ROOT / "docs" / name).read_bytes(), "make docs"


def test_what_is_described_is_what_the_readers_take() -> None:
    assert [*PARTS] == [*config.SCHEMA]
    assert {*KEYS} | {*PARTS} >= {*FIELDS}
    assert {*KEYS} <= {*FIELDS}
    assert {*KINDS} == {field.read for field in FIELDS.values()}


def test_the_page_and_the_manual_name_every_key_and_its_default() -> None:
    page, manual = PAGE.read_text(), MANUAL.read_text().replace("\\&", "").replace("\\-", "-").replace("\\(dq", '"')
    for path, field in FIELDS.items():
        assert path in manual
        if path in KEYS and field.default:
            name = path.rpartition(".")[2]
            assert re.search(rf"^\| `{name}` \|.*\| `{re.escape(field.default)}` \|$", page, re.MULTILINE), path


def test_the_package_installs_the_manual_and_the_schema_where_the_files_look_for_it() -> None:
    rules = (ROOT / "packaging/debian/rules").read_text()
    assert f"docs/schema.json $(package){SCHEMA_PATH}\n" in rules
    assert "docs/tpu-agent.yaml.5" in rules
    assert f"\n# yaml-language-server: $schema={SCHEMA_PATH}\n" in (ROOT / "packaging/config.yaml").read_text()


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc here")
@pytest.mark.parametrize("name", ["tpu-agent.yaml.5", "tpuagent.8"])
def test_mandoc_has_nothing_to_say_of_a_manual(name: str) -> None:
    command = ["mandoc", "-T", "lint", "-W", "warning", str(ROOT / "docs" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout + done.stderr == ""


@pytest.mark.skipif(not shutil.which("mandoc"), reason="no mandoc here")
def test_the_manual_fits_a_terminal_of_80_columns() -> None:
    command = ["mandoc", "-T", "ascii", "-O", "width=78", str(MANUAL)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert [line for line in re.sub(".\b", "", shown).splitlines() if len(line) > 80] == []


# The examples and the schema --------------------------------------------------------------------------------------


def examples() -> Iterator[str]:
    for name, pattern in EXAMPLES.items():
        text = (ROOT / name).read_text().partition("What an editor cannot tell\n\n")[0].partition(".Ss What an editor")
        found: list[str] = re.findall(pattern, text[0] + text[2].partition(".Sh FILES")[2], re.MULTILINE | re.DOTALL)
        assert found, name
        yield from (one.replace("\\e", "\\") for one in found)


@pytest.mark.parametrize("example", [*examples()])
def test_every_example_is_taken_by_the_agent_and_by_an_editor(example: str, tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(example)
    assert config.load(Host("/"), str(file)).settings
    assert faults(example) == []


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(SCHEMA)


def test_an_editor_underlines_nothing_in_the_installed_file_with_or_without_its_comments() -> None:
    text = (ROOT / "packaging/config.yaml").read_text()
    shown = "\n".join(line[1:] for line in text.splitlines() if not re.match("#( [^ ]|$)", line))
    assert (faults(text), faults(shown)) == ([], [])
    assert "ready_wait_s" in shown


def test_every_key_of_the_schema_is_described() -> None:
    for path in [*KEYS, *PARTS]:
        what = KEYS.get(path) or PARTS[path].what
        assert below(path)["description"].startswith(what.replace("`", "")), path


def below(path: str) -> dict[str, Any]:
    node: dict[str, Any] = SCHEMA
    for name in path.split("."):
        node = node["additionalProperties"] if name == "NAME" else node["properties"][name]
    return node


def test_the_defaults_of_the_schema_are_those_of_the_readers(tmp_path: Path) -> None:
    """Typed out they change nothing, and nothing is left that has no default."""
    file = tmp_path / "defaults.yaml"
    file.write_text(typed_out(SCHEMA))
    read = config.load(Host("/"), str(file))
    assert (read.devices, read.metadata, read.containers) == (Policy(), MetadataPolicy(), ContainerPolicy())
    assert [one.key for one in config.explain(read) if one.origin == "default"] == []


def test_the_defaults_of_any_container_are_those_of_one_that_is_only_named(tmp_path: Path) -> None:
    file = tmp_path / "defaults.yaml"
    file.write_text(f"containers: {{mine: {typed_out(below('containers.NAME'))}}}")
    assert config.load(Host("/"), str(file)).containers.specs[-1] == Spec("mine")


def typed_out(node: dict[str, Any]) -> str:
    """A part of the schema as the configuration of its defaults."""
    if "properties" in node:
        return "{" + ", ".join(f"{name}: {typed_out(one)}" for name, one in node["properties"].items()) + "}"
    default = node["default"]
    return default if default in ("auto", "off") else json.dumps(default)
