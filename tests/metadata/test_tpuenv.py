"""What is taken from the tpu-env attribute, and what is not?"""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.metadata import corpus
from tpuagent.errors import BadAnswer
from tpuagent.metadata.tpuenv import (
    LONGEST_DOCUMENT,
    LONGEST_ENTRY,
    accelerator_type,
    parse_tpu_env,
    render_second,
    render_tpu_env,
    value_fault,
    with_aliases,
    worker_id,
)

GCE = """\
ALT: 'false'
CHIPS_PER_HOST_BOUNDS: '2,2,1'
INJECT_SLICE_BUILDER_FAULT: ''
TPU_ACCELERATOR_TYPE: 'v6e-8'
TPU_RUNTIME_METRICS_PORTS: '8431,8432'
TPU_WORKER_ID: '0'
WRAP: 'false,false,false'
"""
TPU_API = """\
ACCELERATOR_TYPE: 'v4-256'
CONSUMER_PROJECT_ID: 'example'
UID: '6502082742571311568'
VBARCONTROL_AGENT_DOCKER_URL: ''
WORKER_ID: '3'
"""


@pytest.mark.parametrize(
    "typed",
    ["true", "no", "on", "~", "null", "10:30", "010", "0x1f", "1_000", "1e3", "2024-01-02", "0000:00:04.0", ".5", "=",
     "6502082742571311568", "v6e-8", "2x4", "''", "-1", "+1", ".inf"],
)  # fmt: skip
def test_a_value_is_taken_as_it_is_typed(typed: str) -> None:
    assert parse_tpu_env(f"KEY: {typed}\n").values == {"KEY": "" if typed == "''" else typed}


def test_both_dialects_are_rendered_in_their_own_order() -> None:
    assert render_tpu_env(parse_tpu_env(GCE).values) == GCE.replace(": '", '="').replace("'\n", '"\n')
    content = parse_tpu_env(TPU_API)
    assert list(content.values) == [
        "ACCELERATOR_TYPE",
        "CONSUMER_PROJECT_ID",
        "VBARCONTROL_AGENT_DOCKER_URL",
        "WORKER_ID",
    ]
    assert [(one.name, one.line) for one in content.left_out] == [("UID", 3)]


def test_what_both_a_shell_and_systemd_would_expand_is_escaped() -> None:
    assert render_tpu_env({"A": "a\"b\\c`d$e'f!g#h"}) == 'A="a\\"b\\\\c\\`d\\$e\'f!g#h"\n'


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ("", "it is empty"),
        ("---\n", "it is empty"),
        ("{}\n", "it is empty"),
        ("# nothing\n", "it is empty"),
        ("UID: '1'\n", "nothing in it can be written: UID"),
        ("A: 1\nB: 2\nA: 1\n", "A is on line 1 and again on line 3"),
        ("A: &x 1\nB: 2\n", "line 1: it has an anchor or an alias"),
        ("A: 1\nB: *x\n", "line 2: it has an anchor or an alias"),
        ("A: 1\n<<: &x {B: 2}\n", "line 2: it has an anchor or an alias"),
        ("A: 1\n---\nB: 2\n", "line 2: a second document begins"),
        ("- A\n", "line 1: keys with values are expected"),
        ("just text\n", "line 1: keys with values are expected"),
        ("<html>\n<body>No: sign-in</body></html>\n", "line 1: keys with values are expected"),
        ("<!DOCTYPE html>\n<p>Error: 404</p>\n", "keys with values are expected"),
        ("A: 1\nB: 'open\n", "line 3: it is not YAML"),
        ("A: 1\n\tB: 2\n", "line 2: it is not YAML"),
        ("A: 1\nB: \x01\n", "line 2: it is not YAML: U+0001 is not allowed"),
        ("A: 1\nB: \0\n", "line 2: it is not YAML: U+0000 is not allowed"),
        ("A: 1\nB 2\n", "it is not YAML"),
        ("A: [1\n", "it is not YAML"),
        ("A: '" + "x" * LONGEST_DOCUMENT + "'\n", "it is longer than 256 KiB"),
    ],
)  # fmt: skip
def test_a_document_without_a_clear_meaning_is_refused_and_the_line_named(document: str, why: str) -> None:
    with pytest.raises(BadAnswer) as caught:
        parse_tpu_env(document)
    assert why in caught.value.why


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("agent-worker-number: '1'", "a shell takes no such name"),
        ("a.b: '1'", "a shell takes no such name"),
        ("9x: '1'", "a shell takes no such name"),
        ("'': '1'", "a shell takes no such name"),
        ("é: '1'", "a shell takes no such name"),
        ("? [A]\n: '1'", "its name is no text"),
        *((f"{name}: '1'", "keeps this name for itself")
          for name in ("UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS", "BASH_VERSINFO", "BASH_ENV", "ENV", "PATH",
                       "IFS", "LD_PRELOAD", "LD_LIBRARY_PATH", "PROMPT_COMMAND", "PS1", "PS4", "OPTIND", "LC_ALL",
                       "PYTHONPATH", "_")),
        ('A: "1\\n2"', "U+000A"),
        ('A: "1\\0"', "U+0000"),
        ('A: "1\\e[0m"', "U+001B"),
        ('A: "1\\r"', "U+000D"),
        ('A: "\\u2028"', "U+2028"),
        ('A: "\\ufffe"', "U+FFFE"),
        ('A: "\\ud800"', "U+D800"),
        ("A: |\n  block", "several lines"),
        ("A: >-\n  block", "several lines"),
        ("A: 'one\n  two'", "several lines"),
        ("A: [1, {b: 2}]", "a list or a map"),
        ("A:\n  b: 1\n  c: [2]", "a list or a map"),
        ("A: '" + "x" * LONGEST_ENTRY + "'", "longer than what the kernel hands to a program"),
    ],
)  # fmt: skip
def test_an_entry_that_some_reader_could_not_take_is_left_out_with_one_reason(entry: str, why: str) -> None:
    content = parse_tpu_env(f"FIRST: '1'\n{entry}\nLAST: '2'\n")
    assert content.values == {"FIRST": "1", "LAST": "2"}
    assert [why in one.why for one in content.left_out] == [True]


def test_a_tab_and_any_language_are_no_reason_to_leave_a_value_out() -> None:
    assert parse_tpu_env("A: 'a\tb'\nB: 日本 \U0001f600 \u00e9\ufeff\n").left_out == ()


@pytest.mark.parametrize(
    ("document", "expected"),
    [("TPU_WORKER_ID: '0'", "0"), ("WORKER_ID: '3'", "3"), ("TPU_WORKER_ID: ''", None), ("ZONE: a", None),
     ("TPU_WORKER_ID: ''\nWORKER_ID: '3'", "3"), ("AGENT: '0'", None)],
)  # fmt: skip
def test_a_worker_id_that_is_missing_or_empty_is_unknown_and_zero_is_an_id(document: str, expected: str | None) -> None:
    assert worker_id(parse_tpu_env(document).values) == expected


def test_nothing_is_made_up_for_an_old_generation_with_four_keys() -> None:
    content = parse_tpu_env("ZONE: 'us-central1-b'\nNODE_ID: 'n'\nTYPE: 'V2'\nALT: 'false'\n")
    assert (accelerator_type(content.values), worker_id(content.values)) == (None, None)
    assert with_aliases(content.values) == content.values


def test_aliases_say_the_same_in_both_dialects_and_change_nothing_that_is_there() -> None:
    assert with_aliases({"TPU_ACCELERATOR_TYPE": "v6e-8", "WORKER_ID": ""}) == {
        "TPU_ACCELERATOR_TYPE": "v6e-8", "WORKER_ID": "", "ACCELERATOR_TYPE": "v6e-8", "TPU_WORKER_ID": "",
    }  # fmt: skip
    both = {"TPU_WORKER_ID": "0", "WORKER_ID": "1"}
    assert with_aliases(both) == both


@given(st.dictionaries(st.from_regex(r"N_[A-Za-z0-9_]{0,5}", fullmatch=True), st.text(max_size=30), min_size=1))
def test_any_text_is_either_written_so_that_it_can_be_read_back_or_named(entries: dict[str, str]) -> None:
    try:
        content = parse_tpu_env(corpus.as_yaml(entries))
    except BadAnswer:
        assert all(value_fault(name, value) for name, value in entries.items())
        return
    assert {**content.values, **{one.name: entries[one.name] for one in content.left_out}} == entries
    assert _double_quoted(render_tpu_env(content.values)) == content.values
    assert yaml.load(render_second(content.values), yaml.BaseLoader) == content.values  # noqa: S506  text only


def _double_quoted(text: str) -> dict[str, str]:
    """POSIX's rule for double quotes, written down once more."""
    found = {}
    for line in text.removesuffix("\n").split("\n"):
        name, _, rest = line.partition("=")
        assert rest[0] == rest[-1] == '"'
        value, signs = "", iter(rest[1:-1])
        for sign in signs:
            assert sign not in '"$`'
            value += next(signs) if sign == "\\" else sign
        found[name] = value
    return found
