"""What becomes of /etc/environment, whatever is in it?"""

from __future__ import annotations

import ctypes.util
import random
from collections.abc import Iterator

import pytest

from tests.metadata.readers import Pam, read_by_rules
from tpuagent.metadata.environment import Edit, plan_environment, render_diff
from tpuagent.metadata.pam import effective
from tpuagent.metadata.policy import EnvironmentPolicy, environment_policy

COUNT = 10_000
PYTHON = "/usr/bin/python3"
DEFAULT = EnvironmentPolicy()
LINES = """\
CLOUDSDK_PYTHON=/usr/bin/python3
GCS_RESOLVE_REFRESH_SECS=60
GCS_REQUEST_CONNECTION_TIMEOUT_SECS=300
GCS_METADATA_REQUEST_TIMEOUT_SECS=300
GCS_READ_REQUEST_TIMEOUT_SECS=300
GCS_WRITE_REQUEST_TIMEOUT_SECS=600
"""
ONE = EnvironmentPolicy((("GCS_X", "60"),))


def edit(text: str, policy: EnvironmentPolicy = ONE, ours: frozenset[str] = frozenset()) -> Edit:
    """The edit on a host with one interpreter."""
    return plan_environment(text, policy, ours, lambda value: value in {PYTHON, "/opt/python", "python3"})


# One example each -------------------------------------------------------------------------------------------------


def test_an_empty_file_gets_the_documented_lines() -> None:
    assert edit("", DEFAULT).text == LINES
    assert edit('PATH="/usr/bin"\n', DEFAULT).text == 'PATH="/usr/bin"\n' + LINES


def test_a_last_line_without_its_end_gets_one() -> None:
    assert edit("A=1").text == "A=1\nGCS_X=60\n"


def test_a_file_that_has_it_all_is_not_changed_by_a_byte() -> None:
    for text in (
        LINES,
        "\n" + LINES + "\n#",
        LINES.replace("=", '="').replace("\n", '"\n'),
        LINES.replace("GCS", "export GCS"),
    ):
        assert edit(text, DEFAULT).text == text


@pytest.mark.parametrize(
    "line", ["GCS_X=30", "export GCS_X=30", "  GCS_X='30'", "GCS_X=", "GCS_X=30#60", 'GCS_X="60" # why', "GCS_X=a\\\nb"]
)
def test_an_administrators_own_value_is_kept_and_said(line: str) -> None:
    done = edit(f"A=1\n{line}\nB=2\n")
    assert done.text == f"A=1\n{line}\nB=2\n"
    assert len(done.kept) == 1
    assert "stays; the configuration has 60" in done.kept[0]


def test_a_forced_value_wins_in_place() -> None:
    policy = EnvironmentPolicy((("GCS_X", "60"),), frozenset({"GCS_X"}))
    assert edit("A=1\nexport GCS_X=30 \nB=2\n", policy).text == "A=1\nGCS_X=60\nB=2\n"
    assert edit("GCS_X=1\nGCS_X=2\\\n3\nB=2\n", policy).text == "GCS_X=1\nGCS_X=60\nB=2\n"


@pytest.mark.parametrize(
    "text", ["#GCS_X=60\n", "GCS_X\n", "GCS_X=30\nGCS_X\n", "gcs_x=1\n", " =GCS_X=1\n", "X-GCS_X=60\n"]
)
def test_what_pam_does_not_take_for_the_variable_is_no_value_of_it(text: str) -> None:
    assert edit(text).text == text + "GCS_X=60\n"


def test_the_last_of_several_lines_counts_and_the_others_are_reported() -> None:
    done = edit("GCS_X=30\nGCS_X=60\n")
    assert done.text == "GCS_X=30\nGCS_X=60\n"
    assert done.odd == ("lines 1, 2: GCS_X is set again and again; the last one counts",)


@pytest.mark.parametrize("gone", ["/usr/bin", "/opt/gone/bin/python", '"/usr/bin/python2"', "nopython"])
def test_an_interpreter_that_is_none_is_corrected_and_that_is_said(gone: str) -> None:
    done = edit(f"A=1\nCLOUDSDK_PYTHON={gone}\nB=2\n", EnvironmentPolicy((("CLOUDSDK_PYTHON", PYTHON),)))
    assert done.text == f"A=1\nCLOUDSDK_PYTHON={PYTHON}\nB=2\n"
    assert "which is no interpreter" in done.changes[0]


@pytest.mark.parametrize("own", ["/opt/python", "python3", ""])
def test_an_interpreter_of_the_administrators_is_kept(own: str) -> None:
    text = f"CLOUDSDK_PYTHON={own}\n"
    assert edit(text, EnvironmentPolicy((("CLOUDSDK_PYTHON", PYTHON),))).text == text


def test_an_interpreter_that_the_host_does_not_have_is_never_written() -> None:
    policy = EnvironmentPolicy((("CLOUDSDK_PYTHON", "/gone"),), frozenset({"CLOUDSDK_PYTHON"}))
    for text in ("", "CLOUDSDK_PYTHON=/also/gone\n"):
        assert edit(text, policy).text == text


def test_the_agents_own_line_follows_the_configuration_and_goes_when_it_is_switched_off() -> None:
    first = edit("A=1\n")
    more = edit(first.text, EnvironmentPolicy((("GCS_X", "90"),)), first.ours)
    assert (more.text, more.ours) == ("A=1\nGCS_X=90\n", frozenset({"GCS_X=90"}))
    assert edit(more.text, EnvironmentPolicy(()), more.ours).text == "A=1\n"
    assert edit(first.text, EnvironmentPolicy(()), frozenset()).text == first.text
    changed = first.text.replace("60", "30")
    assert edit(changed, ONE, first.ours).text == changed


def test_nothing_is_added_where_a_backslash_would_swallow_it() -> None:
    for text in ("A=1\\\n", "A=1\\", "A=1\\\n\n# more\n", "B=2\nA=1 \\ \n"):
        done = edit(text)
        assert done.text.replace("GCS_X=60\n", "") == text
        assert read_by_rules(done.text.encode()) is None or effective(done.text)["GCS_X"] == "60"
        assert effective(done.text)["GCS_X"] == "60"
        assert "ends in a backslash" in done.odd[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("=\n", "line 1: it begins with '='"),
        ("A=1\n = x\n", "line 2: it begins with '='"),
        ("A=1\n" + "B=" + "x" * 2000 + "\n", "line 2: it is too long for PAM before 1.4"),
        ("B=" + "x" * 9000 + "\n", "line 1: it is too long for PAM 1.4 and 1.5"),
        ("A=\0\n", "line 1: it has a NUL"),
        ("A-B=1\n", "line 1: PAM takes 'A-B' for no name"),
        ("A=1\r\n", "line 1: the value of A keeps what ends it"),
        ('A="1" \n', "line 1: the value of A keeps what ends it"),
    ],
)  # fmt: skip
def test_what_is_odd_is_left_and_reported(text: str, said: str) -> None:
    done = edit(text)
    assert done.text == text + "GCS_X=60\n"
    assert said in done.odd[0]


def test_the_difference_is_shown_as_diff_does_whatever_the_encoding() -> None:
    old = b"A=\xe9\nB=1".decode("utf-8", "surrogateescape")
    assert render_diff(old, edit(old).text).splitlines() == [
        "--- /etc/environment", "+++ /etc/environment", "@@ -1,2 +1,3 @@", " A=\\xe9", "-B=1",
        "\\ No newline at end of file", "+B=1", "+GCS_X=60",
    ]  # fmt: skip
    assert render_diff(old, old) == ""


def test_the_configuration_adds_changes_and_takes_away_variables() -> None:
    policy = environment_policy({"GCS_RESOLVE_REFRESH_SECS": "90", "CLOUDSDK_PYTHON": None, "MORE": "a b"})
    assert edit("", policy).text.splitlines()[0] == "GCS_RESOLVE_REFRESH_SECS=90"
    assert edit("", policy).text.splitlines()[-1] == 'MORE="a b"'
    assert "CLOUDSDK_PYTHON" not in edit("", policy).text


# Random files -----------------------------------------------------------------------------------------------------

_NAMES = ("GCS_X", "CLOUDSDK_PYTHON", "PATH", "A", "B_1", "9", "A-B", "", "É", "export", "GCS_X ", "GCS_X2")
_VALUES = ("60", "30", "/usr/bin/python3", "/gone", "a b", '"a b"', "'60'", '"60"', "'", '"', "a#b", '"a#b"', "#", "",
           " 60 ", '"60" ', "a\\", "\\", "a\\b", "\xe9", "a\r", "=", "a=b", "\t", '""x""')  # fmt: skip
_WHOLE = (
    "",
    " ",
    "#",
    "# GCS_X=60",
    "  # \\",
    "\\",
    " \\ ",
    "=",
    "=x",
    "export ",
    "export",
    "junk line",
    "GCS_X",
    "A",
    "\0",
)


def random_files(seed: int, count: int) -> Iterator[bytes]:
    """Files such as people, installers and accidents leave behind."""
    rng = random.Random(seed)  # noqa: S311  no secret
    for _ in range(count):
        lines = []
        for _ in range(rng.randint(0, 6)):
            if rng.random() < 0.35:
                lines.append(rng.choice(_WHOLE))
                continue
            before = rng.choice(("", "", "", "", " ", "\t", "export ", "export  ", "set "))
            after = rng.choice(("", "", "", "", " ", " # why", "#", "\\", " \\ ", "x" * rng.choice((1, 1000, 8200))))
            lines.append(
                before + rng.choice(_NAMES) + rng.choice(("=", "=", "=", " = ", "")) + rng.choice(_VALUES) + after
            )
        yield ("\n".join(lines) + rng.choice(("\n", "\n", "\n", ""))).encode(
            "latin-1" if rng.random() < 0.5 else "utf-8"
        )


POLICY = EnvironmentPolicy((("GCS_X", "60"), ("CLOUDSDK_PYTHON", PYTHON), ("NEW", "a b")))


def edited(data: bytes, ours: frozenset[str] = frozenset()) -> tuple[bytes, frozenset[str]]:
    """The bytes after an edit."""
    done = edit(data.decode("utf-8", "surrogateescape"), POLICY, ours)
    return done.text.encode("utf-8", "surrogateescape"), done.ours


def test_a_second_edit_changes_no_byte_whether_the_first_is_remembered_or_not() -> None:
    for data in random_files(seed=1, count=COUNT):
        once, ours = edited(data)
        assert edited(once, ours) == (once, ours)
        assert edited(once)[0] == once


def test_every_other_line_stays_as_and_where_it_was() -> None:
    for data in random_files(seed=2, count=COUNT):
        text = data.decode("utf-8", "surrogateescape")
        new = iter(plan_environment(text, POLICY, frozenset(), lambda _: True).text.split("\n"))
        assert all(line in new for line in text.split("\n")), data  # `in` on an iterator: in this order


def judge(data: bytes, before: dict[str, bytes], after: dict[str, bytes]) -> None:
    """What a login got before the edit and gets after it."""
    others = before.keys() - {"GCS_X", "CLOUDSDK_PYTHON", "NEW"}
    assert {name: after.get(name) for name in others} == {name: before[name] for name in others}, data
    assert after["GCS_X"] == before.get("GCS_X", b"60"), data
    assert after["NEW"] == before.get("NEW", b"a b"), data
    python = before.get("CLOUDSDK_PYTHON", PYTHON.encode())
    good = python in {PYTHON.encode(), b"/opt/python", b"python3", b""}
    assert after["CLOUDSDK_PYTHON"] == (python if good else PYTHON.encode()), data


def test_a_login_gets_what_is_missing_and_keeps_what_it_had_by_the_rules_written_down_once_more() -> None:
    judged = 0
    for data in random_files(seed=3, count=COUNT):
        before, after = read_by_rules(data), read_by_rules(edited(data)[0])
        if before is not None and after is not None:  # the whole file is read
            judge(data, dict(before), dict(after))
            judged += 1
    assert judged > COUNT / 2


@pytest.fixture
def pam() -> Iterator[Pam]:
    """The real reader of this machine."""
    if not ctypes.util.find_library("pam"):
        pytest.skip("PAM is not installed here")
    pam = Pam()
    if pam.read(b"A=1\n") != {"A": b"1"}:
        pytest.skip("this machine's PAM cannot be asked without a login")
    yield pam
    pam.close()


def test_a_login_gets_what_is_missing_and_keeps_what_it_had_by_this_machines_pam(pam: Pam) -> None:
    newer = pam.read(b"A=1\\\n\nB=2\n") == {"A": b"1", "B": b"2"}  # from 1.6 on a blank line ends a joined one
    for data in random_files(seed=4, count=COUNT // 4):
        if read_by_rules(data) is None or (newer and b"\\" in data):
            continue
        before = pam.read(data)
        if not newer:
            assert before == read_by_rules(data), data
        judge(data, before, pam.read(edited(data)[0]))
