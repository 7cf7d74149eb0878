"""Does docs/migration.md lead from the set-up by hand to the package? Its steps are run, its output is compared."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from .byhand import set_up_by_hand
from .root import Root

pytestmark = pytest.mark.chroot

PAGE = Path(__file__).parents[2] / "docs/migration.md"
BY_HAND = {
    "udev rule by hand",
    "script by hand",
    "grub by hand",
    "limits by hand",
    "set-up by hand",
    "/etc/environment",
}


def block(name: str) -> str:
    """What stands in the page between the fences below a mark."""
    found = re.search(rf"^<!-- {name} -->\n```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def check(root: Root, *options: str) -> str:
    return root.run("tpuagent", "check", "--image", "/", *options)


def rows_by_hand(printed: str) -> str:
    """The lines about what this page is about, with what stands below them."""
    rows = re.split(r"^(?=\S)", printed, flags=re.MULTILINE)
    return "".join(row for row in rows if row and any(what in row.splitlines()[0] for what in BY_HAND))


@pytest.fixture
def by_hand(image: Root, package: Path) -> Root:
    set_up_by_hand(image)
    image.install(package)
    return image


def test_the_check_names_each_thing_as_the_page_shows_it(by_hand: Root) -> None:
    assert rows_by_hand(check(by_hand)) == block("before")


def test_after_the_steps_of_the_page_nothing_of_that_kind_is_named(by_hand: Root) -> None:
    by_hand.shell(block("steps"))
    assert rows_by_hand(check(by_hand)) == block("after")
    rows = json.loads(check(by_hand, "--json"))
    assert {row["what"] for row in rows if row["verdict"] not in ("ok", "not checked")} <= {"gcloud"}
    # The package's own configuration names the image.
    left = "grep -rl --exclude-dir=tpu-agent 'vbar_control_agent\\|attributes/tpu-env' /etc /usr/local /var/lib/cloud"
    assert by_hand.shell(f"{left} || true") == ""


def test_what_the_check_prints_mends_it_as_well(by_hand: Root) -> None:
    for row in json.loads(check(by_hand, "--json")):
        if row["what"] in BY_HAND and row["verdict"] == "warning" and not row["mend"].startswith("edit "):
            by_hand.shell(row["mend"])
    rows = json.loads(check(by_hand, "--json"))
    assert not [row for row in rows if row["what"].endswith("by hand") and row["what"] != "set-up by hand"]
    assert [row["found"] for row in rows if row["what"] == "set-up by hand"] == ["nothing"]


def test_every_step_is_needed(by_hand: Root) -> None:
    before = {json.dumps(row) for row in json.loads(check(by_hand, "--json"))}
    for step in block("steps").splitlines():
        if "update-grub" in step or step.startswith("systemctl"):
            continue
        by_hand.shell(step)
        after = {json.dumps(row) for row in json.loads(check(by_hand, "--json"))}
        assert before - after, step
        before = after
