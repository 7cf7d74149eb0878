"""Which typed values does the configuration of the metadata take?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tpuagent.metadata.policy import (
    EnvironmentPolicy,
    TpuEnvPolicy,
    read_file_mode,
    read_name,
    read_path,
    read_path_or_off,
    read_value_or_null,
    read_wait_s,
    render_line,
)

Read = Callable[[str, bool], Any]


@pytest.mark.parametrize(
    ("read", "typed", "plain", "value"),
    [
        (read_path, "/home/tpu-runtime/tpu-env", True, "/home/tpu-runtime/tpu-env"),
        (read_path_or_off, "off", True, None),
        (read_path_or_off, "/etc/tpu/tpu-env", True, "/etc/tpu/tpu-env"),
        (read_file_mode, "0644", True, 0o644),
        (read_file_mode, "0440", False, 0o440),
        (read_wait_s, "0", True, 0),
        (read_wait_s, "90", True, 90),
        (read_name, "GCS_X", True, "GCS_X"),
        (read_value_or_null, "null", True, None),
        (read_value_or_null, "~", True, None),
        (read_value_or_null, "", True, None),
        (read_value_or_null, "null", False, "null"),
        (read_value_or_null, "", False, ""),
        (read_value_or_null, "60", True, "60"),
        (read_value_or_null, "no", True, "no"),
        (read_value_or_null, "a b;c", False, "a b;c"),
    ],
)
def test_a_good_value_is_taken(read: Read, typed: str, plain: bool, value: object) -> None:
    assert read(typed, plain) == value


@pytest.mark.parametrize(
    ("read", "typed"),
    [
        *(
            (read_path, typed)
            for typed in ("", "tpu-env", "~/tpu-env", "/", "/home/", "/a/../b", "/a//b", "//a", "/a\nb")
        ),
        (read_path_or_off, "none"),
        *((read_file_mode, typed) for typed in ("644", "0755", "0266", "01644", "rw", "0o644", "")),
        *((read_wait_s, typed) for typed in ("-1", "601", "1.5", "thirty", "", "1e3", "٣", "9" * 5000, "0" * 9 + "91")),
        *((read_name, typed) for typed in ("", "9X", "A-B", "A B", "é")),
        *(
            (read_value_or_null, typed)
            for typed in ("a#b", 'a"b', "it's", "a\\b", "$HOME", "`x`", "a\nb", "é", "x" * 501)
        ),
    ],
)
def test_a_bad_value_is_refused_in_words(read: Read, typed: str) -> None:
    with pytest.raises(ValueError, match=r"is (not|longer)|, which the readers"):
        read(typed, False)


def test_the_defaults_are_the_documented_ones() -> None:
    assert (TpuEnvPolicy().path, TpuEnvPolicy().owner, TpuEnvPolicy().mode) == (
        "/home/tpu-runtime/tpu-env",
        "root",
        0o644,
    )
    assert (TpuEnvPolicy().ready_wait_s, TpuEnvPolicy().second_path, TpuEnvPolicy().aliases) == (30, None, False)
    assert [render_line(name, value) for name, value in EnvironmentPolicy().wanted] == [
        "CLOUDSDK_PYTHON=/usr/bin/python3",
        "GCS_RESOLVE_REFRESH_SECS=60",
        "GCS_REQUEST_CONNECTION_TIMEOUT_SECS=300",
        "GCS_METADATA_REQUEST_TIMEOUT_SECS=300",
        "GCS_READ_REQUEST_TIMEOUT_SECS=300",
        "GCS_WRITE_REQUEST_TIMEOUT_SECS=600",
    ]
