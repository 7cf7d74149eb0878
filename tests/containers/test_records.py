"""Does the memory of an operator's wish survive, and is a damaged one no wish at all?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.containers.records import Record, parse_record, render_record


@given(st.builds(Record, st.booleans(), st.integers(0)))
def test_what_is_written_is_read(record: Record) -> None:
    assert parse_record(render_record(record)) == record


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "7", '"x"', '{"stopped": 1}', '{"asked": "x"}', '{"asked": []}', "[" * 100_000]
)
def test_a_damaged_record_says_nothing(text: str | None) -> None:
    assert parse_record(text) == Record()
