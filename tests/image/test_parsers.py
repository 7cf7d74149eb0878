"""Is every file read as its own reader reads it: the kernel, a shell, PAM, systemd, modprobe?"""

from __future__ import annotations

import os
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.image.trees import GRUB_CFG
from tpuagent.image import dropins, grub, pamlimits, settings
from tpuagent.image.cmdline import last_value, parse_cmdline, satisfies

# The kernel's command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("", None),
        ("idle", None),
        ("idle=poll", "poll"),
        ("idle=poll idle=halt", "halt"),
        ("idle=halt idle=poll", "poll"),
        ("xidle=halt idle=poll idle.x=halt", "poll"),
        ("#idle=poll", None),
        ('note="a idle=halt b" idle=poll', "poll"),
        ('idle="poll"', "poll"),
        ('"idle=poll"', "poll"),
        ("quiet -- idle=poll", None),
        ("idle=poll\n", "poll"),
    ],
)
def test_the_last_whole_token_counts(line: str, value: str | None) -> None:
    assert last_value(line, "idle") == value


def test_a_dash_and_an_underscore_are_the_same_in_a_name() -> None:
    assert last_value("intel-iommu=on", "intel_iommu") == "on"


@pytest.mark.parametrize(
    ("value", "enough"),
    [("on,sm_on", True), ("sm_on,on", True), ("on,sm_on,strict", True), ("on", False), ("off", False),
     ("on,sm_on,off", False), ("on,sm_only", False), (None, False)],
)  # fmt: skip
def test_a_value_is_compared_word_by_word(value: str | None, enough: bool) -> None:
    assert satisfies(value, "on,sm_on") is enough


WORDS = st.text("abz=._-,/", min_size=1, max_size=8).filter(lambda word: word != "--")


@given(st.lists(WORDS))
def test_plain_tokens_come_out_as_they_are(words: list[str]) -> None:
    expected = [
        (name.replace("-", "_"), value if equals else None) for name, equals, value in (w.partition("=") for w in words)
    ]
    assert list(parse_cmdline("  ".join(words))) == expected


@given(st.text())
def test_no_command_line_raises(text: str) -> None:
    parse_cmdline(text)


# GRUB's settings --------------------------------------------------------------------------------------------------


def by_the_shell(text: str) -> str:
    script = f'{text}\nprintf "%s\\0" "$GRUB_CMDLINE_LINUX"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env={"PATH": os.defpath})
    return done.stdout.partition("\0")[0]


SETTINGS = [
    "",
    "GRUB_CMDLINE_LINUX='quiet loglevel=3'",
    "GRUB_CMDLINE_LINUX=quiet",
    'GRUB_CMDLINE_LINUX=""',
    "GRUB_CMDLINE_LINUX=",
    "#GRUB_CMDLINE_LINUX=no",
    'GRUB_CMDLINE_LINUX="a" # b',
    'export GRUB_CMDLINE_LINUX="a b"',
    'GRUB_CMDLINE_LINUX="a"; GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX b"',
    'GRUB_CMDLINE_LINUX="a"\nGRUB_CMDLINE_LINUX="${GRUB_CMDLINE_LINUX} b"',
    'X="1 2"\nGRUB_CMDLINE_LINUX="$X \\"q\\" \\$X \\\\"',
    "X=1\nGRUB_CMDLINE_LINUX='$X'\"$X\"$X",
    'GRUB_CMDLINE_LINUX="a \\\nb"',
    "GRUB_CMDLINE_LINUX='a\nb'",
    "OLD_GRUB_CMDLINE_LINUX=no\nGRUB_CMDLINE_LINUX_DEFAULT=no",
    'GRUB_CMDLINE_LINUX="${NONE:-a b}"',
    "  GRUB_CMDLINE_LINUX=a\\ b",
]


@pytest.mark.parametrize("text", SETTINGS)
def test_settings_are_read_as_the_shell_reads_them(text: str) -> None:
    assert grub.parse_settings(text, {}).get(grub.LINUX, "") == by_the_shell(text)


@given(st.lists(st.tuples(st.sampled_from(["quote", "double", "raw"]), st.text("abc=._ ", max_size=6)), max_size=5))
def test_any_mixture_of_quotes_is_read_as_the_shell_reads_it(parts: list[tuple[str, str]]) -> None:
    text = "GRUB_CMDLINE_LINUX="
    for kind, part in parts:
        text += shlex.quote(part) if kind == "quote" else f'"{part}"' if kind == "double" else part.replace(" ", "")
    assert grub.parse_settings(text, {}).get(grub.LINUX, "") == by_the_shell(text)


@given(st.text("GRUB_CMDLINE_LINUX=\"'\\$(){}`#; \nab"))
def test_no_settings_raise(text: str) -> None:
    grub.parse_settings(text, {})


def test_a_value_that_only_a_shell_could_find_out_is_not_guessed() -> None:
    text = 'GRUB_CMDLINE_LINUX=a\nGRUB_CMDLINE_LINUX="$(cat /x)"\n'
    assert grub.parse_settings(text, {}) == {grub.LINUX: "a"}


def test_the_entries_are_those_that_boot_a_kernel() -> None:
    ordinary, recovery = grub.parse_entries(GRUB_CFG)
    assert (ordinary.title, ordinary.recovery, recovery.recovery) == ("Debian GNU/Linux", False, True)
    assert last_value(ordinary.line, "intel_iommu") == "on,sm_on"


def said_by(*files: tuple[str, str]) -> tuple[str | None, str | None]:
    found = grub.forecast(files, settings.GRUB_DROP_IN, settings.KERNEL_PARAMETERS)
    return last_value(found.line, "intel_iommu"), found.said_by.get("intel_iommu")


def test_a_forecast_names_the_file_that_decides() -> None:
    ours = (settings.GRUB_DROP_IN, "…")
    early = ("/etc/default/grub.d/50-cloudimg-settings.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="intel_iommu=off"')
    late = ("/etc/default/grub.d/zzz.cfg", 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT intel_iommu=off"')
    replacing = ("/etc/default/grub.d/zzz.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=quiet")
    assert said_by() == (None, None)
    assert said_by(early) == ("off", early[0])
    assert said_by(early, ours) == ("on,sm_on", ours[0])
    assert said_by(early, ours, late) == ("off", late[0])
    assert said_by(early, ours, replacing) == (None, late[0])


# PAM's limits -----------------------------------------------------------------------------------------------------


def limit(text: str, user: str = "any user", groups: tuple[str, ...] = (), kind: str = "soft") -> str:
    """What becomes of nofile: a number, "unlimited", or "none said"."""
    found = pamlimits.effective(pamlimits.parse_limits(text, "x"), user, groups, "nofile", kind).line
    return "none said" if found is None else "unlimited" if found.limit is None else str(found.limit)


@pytest.mark.parametrize(
    ("text", "user", "value"),
    [
        ("* soft nofile 5", "any user", "5"),
        ("* soft nofile 5", "root", "none said"),
        ("* - nofile 5", "any user", "5"),
        ("* soft nofile 5\n* soft nofile 6", "any user", "6"),
        ("ann soft nofile 5\n* soft nofile 6", "ann", "5"),
        ("@staff soft nofile 5\n* soft nofile 6", "ann", "5"),
        ("ann soft nofile 4\n@staff soft nofile 5", "ann", "4"),
        ("@staff soft nofile 5", "root", "none said"),
        ("root soft nofile 5 # why", "root", "5"),
        ("#* soft nofile 5", "any user", "none said"),
        ("* soft nofiles 5", "any user", "none said"),
        ("* SOFT NoFile 5", "any user", "5"),
        ("* soft nofile", "any user", "none said"),
        ("* soft nofile 5\n* soft nofile many", "any user", "5"),
        ("* soft nofile 12abc", "any user", "12"),
        ("* soft nofile +7", "any user", "7"),
        ("* soft nofile 1.5", "any user", "1"),
    ],
)
def test_a_name_counts_more_than_a_group_and_that_more_than_everybody(text: str, user: str, value: str) -> None:
    assert limit(text, user, ("staff",)) == value


@pytest.mark.parametrize("word", ["unlimited", "infinity", "-1"])
def test_files_without_limit_are_a_fault_that_locks_users_out(word: str) -> None:
    (line,) = pamlimits.parse_limits(f"* hard nofile {word}", "x")
    assert "login" in line.fault
    assert not pamlimits.Effective(line).reaches(1)
    (memory,) = pamlimits.parse_limits(f"* hard memlock {word}", "x")
    assert pamlimits.Effective(memory).reaches(None)


LINES = st.lists(
    st.tuples(st.sampled_from(["*", "root", "ann", "@staff", "@other"]), st.sampled_from(["soft", "hard", "-"]),
              st.integers(0, 9)),
    max_size=8,
)  # fmt: skip


@given(LINES, st.sampled_from(["ann", "bob", "root"]), st.sampled_from(["soft", "hard"]))
def test_the_most_special_and_then_the_last_line_counts(
    lines: list[tuple[str, str, int]], user: str, kind: str
) -> None:
    text = "\n".join(f"{domain} {of} nofile {value}" for domain, of, value in lines)
    mine = [line for line in lines if line[1] in (kind, "-")]
    everybody = [] if user == "root" else [[x for x in mine if x[0] == "@staff"], [x for x in mine if x[0] == "*"]]
    ranked = [[x for x in mine if x[0] == user], *everybody]
    expected = next((str(group[-1][2]) for group in ranked if group), "none said")
    assert limit(text, user, ("staff",), kind) == expected


@given(st.text())
def test_no_limits_raise(text: str) -> None:
    pamlimits.parse_limits(text, "x")


# systemd and modprobe ---------------------------------------------------------------------------------------------


def test_a_file_in_etc_stands_in_the_place_of_its_namesake() -> None:
    names = {"/etc/d": ["b.conf", "x.txt"], "/usr/lib/d": ["a.conf", "b.conf", "c.conf"]}
    assert dropins.order(names) == ("/usr/lib/d/a.conf", "/etc/d/b.conf", "/usr/lib/d/c.conf")


def test_settings_of_the_manager_are_its_own_and_the_last_one_counts() -> None:
    text = "DefaultX=0\n[Manager]\n;DefaultX=1\n# DefaultX=1\nDefaultX=2\nDefaultX = 3\n[Other]\nDefaultX=4\n"
    assert dropins.parse_manager(text, "f")[-1] == ("DefaultX", dropins.Said("3", "f:6"))
    assert [said.text for _, said in dropins.parse_manager(text, "f")] == ["2", "3"]


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("infinity", (None, None)),
        ("5", (5, 5)),
        ("5:9", (5, 9)),
        ("5:infinity", (5, None)),
        ("8M", (8 << 20, 8 << 20)),
        ("1.5G", (3 << 29, 3 << 29)),
        ("64B", (64, 64)),
    ],
)
def test_a_limit_of_systemd_is_one_number_or_two(text: str, limits: tuple[int | None, int | None]) -> None:
    assert dropins.parse_rlimit(text, units=True) == limits


@pytest.mark.parametrize("text", ["", "x", "5:", "-1", "5:6:7", "M", "8M:4M", "infinity:5", "1.G"])
def test_what_is_no_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no limit"):
        dropins.parse_rlimit(text, units=True)


def test_a_number_of_files_has_no_unit() -> None:
    assert dropins.parse_rlimit("5:9", units=False) == (5, 9)
    with pytest.raises(ValueError, match="no limit"):
        dropins.parse_rlimit("5K", units=False)


def test_the_last_parameter_of_a_module_counts() -> None:
    text = (
        "options vfio-pci ids=a\noptions vfio_pci \\\n  x=1 ids=b\noptions vfio-pcix ids=c\n#options vfio-pci ids=d\n"
    )
    assert dropins.last_parameter(dropins.parse_modprobe(text, "f"), "vfio-pci", "ids") == ("b", "f:2")


@pytest.mark.parametrize(
    ("text", "refuses"),
    [("install vfio-pci /bin/false", True), ("install vfio_pci /usr/bin/true --x", True), ("blacklist vfio-pci", False),
     ("install vfio-pci /sbin/modprobe -i vfio-pci", False), ("install", False)],
)  # fmt: skip
def test_a_module_that_is_replaced_by_nothing_is_refused(text: str, refuses: bool) -> None:
    assert bool(dropins.refusal(dropins.parse_modprobe(text, "f"), "vfio-pci")) is refuses


@given(st.text("options vfio-pci=\\\n#;[]Manager:", max_size=60))
def test_no_drop_in_raises(text: str) -> None:
    dropins.parse_modprobe(text, "f")
    dropins.parse_manager(text, "f")
