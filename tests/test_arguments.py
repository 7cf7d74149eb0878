"""Is what is plainly typed taken as argparse would take it?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.arguments import VERBS, Arguments, take_plain
from tpuagent.parser import build_parser

WORDS = (
    "--json", "--all", "--dry-run", "--debug", "--recursive", "--js", "--json=1", "--config", "--help", "-h", "--", "-",
    "", "00:04.0", "0000:00:05.0", "show", "a b", "-1", "@file", *VERBS,
)  # fmt: skip
typed = st.lists(st.sampled_from(WORDS) | st.text(max_size=4), max_size=5)


def plainly(argv: list[str]) -> dict[str, object] | None:
    arguments = Arguments(config=None)
    return vars(arguments) if take_plain(argv, arguments) else None


def by_argparse(argv: list[str], verb: str | None) -> dict[str, object]:
    return vars(build_parser(verb).parse_args(argv, Arguments(config=None)))


@given(st.sampled_from(list(VERBS)), typed)
def test_what_is_plain_means_to_argparse_the_same(verb: str, words: list[str]) -> None:
    if (taken := plainly([verb, *words])) is not None:
        assert taken == by_argparse([verb, *words], verb) == by_argparse([verb, *words], None)


@given(typed)
def test_what_is_not_plain_changes_nothing(argv: list[str]) -> None:
    arguments = Arguments(config=None)
    if not take_plain(argv, arguments):
        assert vars(arguments) == {"config": None}


@pytest.mark.parametrize(
    "line",
    [
        "status", "status --json", "devices", "devices --json", "bind --all", "bind --all --dry-run --json",
        "bind 00:04.0 00:05.0", "unbind --dry-run 00:04.0", "unbind 00:04.0 --json", "config", "environment --dry-run",
        "run", "run --debug",
    ],
)  # fmt: skip
def test_the_commands_of_every_day_are_plain(line: str) -> None:
    assert plainly(line.split()) is not None


@pytest.mark.parametrize(
    "line",
    ["", "bnid", "status extra", "bind 00:04.0 --all 00:05.0", "bind -h", "bind -- 00:04.0", "metadata KEY", "env"],
)
def test_anything_else_is_left_to_argparse(line: str) -> None:
    assert plainly(line.split()) is None
