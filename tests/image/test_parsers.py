"""Are kernel command lines, GRUB's files and limits read as the kernel, GRUB, PAM and systemd read them?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.image.kernel import has_value, parameters_in_defaults, parse_grub, parse_parameters
from tpuagent.image.limits import at_least, is_illegal, parse_limits, parse_manager, service_limit, session_limit

WORD = st.text("abc-_.,", min_size=1, max_size=6).filter(lambda word: word != "--")


@given(st.lists(st.tuples(WORD, WORD | st.none()), max_size=8))
def test_the_last_of_two_equal_parameters_counts(words: list[tuple[str, str | None]]) -> None:
    line = " ".join(name if value is None else f"{name}={value}" for name, value in words)
    assert parse_parameters(line) == dict(words)


@given(st.text(max_size=60))
def test_any_line_is_read(text: str) -> None:
    parse_parameters(text)
    parse_grub(text)
    dict(parameters_in_defaults(text))
    list(parse_limits(text, "x"))
    parse_manager(text)
    service_limit(text, "memlock")


@pytest.mark.parametrize(
    ("line", "name", "value", "there"),
    [
        ("idle=poll", "idle", "poll", True),
        ("idle=poll idle=halt", "idle", "poll", False),
        ("idle=halt idle=poll", "idle", "poll", True),
        ("xidle=poll", "idle", "poll", False),
        ("idle=polling", "idle", "poll", False),
        ("idle", "idle", "poll", False),
        ("intel_iommu=on", "intel_iommu", "on,sm_on", False),
        ("intel_iommu=sm_on,on", "intel_iommu", "on,sm_on", True),
        ("intel_iommu=on,sm_on,igfx_off", "intel_iommu", "on,sm_on", True),
        ('x="a idle=poll b"', "idle", "poll", False),
        ("-- idle=poll", "idle", "poll", False),
        ("quiet\tidle=poll\n", "idle", "poll", True),
    ],
)
def test_tokens_are_compared_as_tokens(line: str, name: str, value: str, there: bool) -> None:
    assert has_value(parse_parameters(line), name, value) == there


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("GRUB_CMDLINE_LINUX='quiet loglevel=3'", {"quiet": None, "loglevel": "3"}),
        ("GRUB_CMDLINE_LINUX=quiet", {"quiet": None}),
        ('GRUB_CMDLINE_LINUX=""', {}),
        ("GRUB_CMDLINE_LINUX=", {}),
        ('  export GRUB_CMDLINE_LINUX_DEFAULT="idle=halt" # why', {"idle": "halt"}),
        ('#GRUB_CMDLINE_LINUX="idle=halt"', {}),
        ('GRUB_CMDLINE_LINUX_OTHER="idle=halt"', {}),
        ('GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX idle=halt"', {"$GRUB_CMDLINE_LINUX": None, "idle": "halt"}),
        ("", {}),
    ],
)
def test_grubs_defaults_are_read_as_a_shell_would(text: str, found: dict[str, str | None]) -> None:
    assert dict(parameters_in_defaults(text)) == found


def test_the_menu_of_a_grub_cfg() -> None:
    text = """\
# linux /vmlinuz-0 idle=halt
menuentry 'Debian GNU/Linux' --class debian $menuentry_id_option 'x' {
\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro  idle=poll quiet
\tinitrd /boot/initrd
}
submenu 'Advanced options' {
\tmenuentry "Debian, recovery" {
\t\tlinux16 /boot/vmlinuz-6.1
\t}
}
"""
    entries = parse_grub(text)
    assert [entry.title for entry in entries] == ["Debian GNU/Linux", "Debian, recovery"]
    assert parse_parameters(entries[0].parameters) == {"root": "UUID=1", "ro": None, "idle": "poll", "quiet": None}
    assert entries[1].parameters == ""


LIMITS = """\
# * soft memlock 1
*  soft  memlock 64   # a comment
*  -     nofile  1000
root hard nofile unlimited
@tpu - memlock unlimited
user soft memlock -1
half a line
* both memlock 3
"""


@pytest.mark.parametrize(
    ("user", "kind", "item", "value"),
    [
        ("other", "soft", "memlock", "64"),
        ("other", "hard", "memlock", None),
        ("other", "hard", "nofile", "1000"),
        ("user", "soft", "memlock", "unlimited"),
        ("root", "soft", "memlock", None),
        ("root", "soft", "nofile", None),
        ("root", "hard", "nofile", "unlimited"),
    ],
)
def test_a_session_gets_what_pam_gives_it(user: str, kind: str, item: str, value: str | None) -> None:
    found = session_limit(parse_limits(LIMITS, "x"), user, kind, item)
    assert (found and found.value) == value


def test_a_limit_that_keeps_people_out_is_known() -> None:
    illegal = [line for line in parse_limits(LIMITS, "/etc/security/limits.conf") if is_illegal(line)]
    assert [line.origin for line in illegal] == ["/etc/security/limits.conf:4"]


@pytest.mark.parametrize(
    ("text", "item", "both"),
    [
        ("infinity", "memlock", ("unlimited", "unlimited")),
        ("100000:524288", "nofile", ("100000", "524288")),
        ("8M", "memlock", ("8192", "8192")),
        ("18446744073709551615", "memlock", ("unlimited", "unlimited")),
        ("1K:2K", "nofile", ("1024", "2048")),
        ("nonsense", "nofile", ("nonsense", "nonsense")),
    ],
)
def test_a_service_gets_what_systemd_gives_it(text: str, item: str, both: tuple[str, str]) -> None:
    assert service_limit(text, item) == both


def test_only_the_managers_section_counts() -> None:
    text = (
        "DefaultLimitNOFILE=0\n[Manager]\n#DefaultLimitNOFILE=1\nDefaultLimitNOFILE=2\n[Other]\nDefaultLimitNOFILE=3\n"
    )
    assert parse_manager(text) == {"DefaultLimitNOFILE": "2"}


@pytest.mark.parametrize(
    ("found", "wanted", "enough"),
    [("unlimited", "5", True), ("5", "unlimited", False), ("5", "5", True), ("4", "5", False), ("x", "5", False)],
)
def test_limits_are_compared_as_numbers(found: str, wanted: str, enough: bool) -> None:
    assert at_least(found, wanted) == enough
