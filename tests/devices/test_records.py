"""Does the agent's memory survive being written down, and a damaged file?"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.devices.test_addresses import addresses
from tpuagent.devices.records import Failure, Record, parse_records, render_records

failures = st.builds(Failure, state=st.sampled_from(["failed", "stuck", "in-use", "blocked"]), reason=st.text())
records = st.builds(
    Record, previous=st.none() | st.text(min_size=1), released=st.booleans(), failure=st.none() | failures
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
# What a record looks like, with anything in the place of any value.
damaged = st.dictionaries(
    st.sampled_from(["0000:00:04.0", "00:05.0", "nonsense"]),
    st.dictionaries(st.sampled_from(["previous", "released", "failure", "other"]), json_values, max_size=4)
    | json_values,
)


@given(st.dictionaries(addresses, records))
def test_what_is_written_reads_back_but_for_what_says_nothing(written: dict[object, Record]) -> None:
    kept = {address: record for address, record in written.items() if record != Record()}
    assert parse_records(render_records(written)) == kept  # type: ignore[arg-type]


@given(st.text() | damaged.map(json.dumps) | json_values.map(json.dumps))
def test_a_damaged_file_is_an_empty_memory_or_one_of_sound_records(text: str) -> None:
    for record in parse_records(text).values():
        assert record.previous is None or isinstance(record.previous, str)
        assert isinstance(record.released, bool)
        assert record.failure is None or isinstance(record.failure, Failure)


@given(st.dictionaries(addresses, records, min_size=1), st.data())
def test_a_file_cut_short_is_an_empty_memory(written: dict[object, Record], data: st.DataObject) -> None:
    text = render_records(written)  # type: ignore[arg-type]
    cut = text[: data.draw(st.integers(0, len(text) - 3))]
    assert parse_records(cut) == {}


@pytest.mark.parametrize(
    "text", [None, "", "[" * 100_000, '{"a":' * 100_000, "\ufffd" * 9, "null", "1", "[1]", '{"00:04.0": 1}']
)
def test_no_text_stops_a_pass(text: str | None) -> None:
    assert parse_records(text) == {}
