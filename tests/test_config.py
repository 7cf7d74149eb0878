"""Is every kind of bad input named in one line, and does what is printed feed back?"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent import config
from tpuagent.devices.pci import GENERATIONS, Generation, parse_address, parse_ids
from tpuagent.devices.policy import Policy
from tpuagent.errors import ConfigError
from tpuagent.host import Host
from tpuagent.values import replace


@pytest.fixture
def etc(tmp_path: Path) -> Path:
    folder = tmp_path / "etc/tpu-agent"
    (folder / "config.d").mkdir(parents=True)
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(str(tmp_path))


@contextmanager
def host_with(text: str | bytes) -> Iterator[Host]:
    """A host with this configuration file, for properties, which share no fixture between their examples."""
    with tempfile.TemporaryDirectory() as root:
        etc = Path(root, "etc/tpu-agent")
        etc.mkdir(parents=True)
        (etc / "config.yaml").write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        yield Host(root)


def fault_in(host: Host, file: str | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        config.load(host, file)
    assert caught.value.exit_code == 78
    text = str(caught.value)
    assert text.isprintable(), "one line and nothing that a terminal or the journal would take for more"
    return text


# What is valid ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "\n\n", "# a comment\n  # and one more\n", "---\n", "--- # empty\n...\n", "devices:\n", "devices: {}\n"],
)
def test_a_file_that_sets_nothing_means_the_defaults(host: Host, etc: Path, text: str) -> None:
    (etc / "config.yaml").write_text(text)
    assert config.load(host).devices == Policy()


def test_no_file_at_all_means_the_defaults(tmp_path: Path) -> None:
    assert config.load(Host(str(tmp_path))).devices == Policy()


def test_every_key_is_read_into_the_policy(host: Host, etc: Path) -> None:
    (etc / "config.yaml").write_text(
        """\
devices:
  mode: 0660
  group: tpu
  exclude: [0000:00:04.0, 00:0A.1, "10001:80:05.0"]
  generations:
    v9x: 1ae0:0099:1ae0:0100
  allow_no_iommu: true
  unsafe_interrupts: false
"""
    )
    policy = config.load(host).devices
    assert policy.mode == 0o660
    assert policy.group == "tpu"
    assert sorted(map(str, policy.exclude)) == ["0000:00:04.0", "0000:00:0a.1", "10001:80:05.0"]
    assert [one.name for one in policy.generations] == ["v5p", "v6e", "tpu7x", "v9x"]
    assert policy.generations[-1].ids == parse_ids("1ae0:0099:1ae0:0100")
    assert policy.allow_no_iommu is True
    assert policy.unsafe_interrupts is False


@pytest.mark.parametrize(
    ("typed", "mode"), [("0666", 0o666), ('"0666"', 0o666), ("'0660'", 0o660), ("0600", 0o600), ("0440", 0o440)]
)
def test_a_mode_means_what_chmod_would_take_it_for_with_or_without_quotes(
    host: Host, etc: Path, typed: str, mode: int
) -> None:
    (etc / "config.yaml").write_text(f"devices:\n  mode: {typed}\n")
    assert config.load(host).devices.mode == mode


@pytest.mark.parametrize(("typed", "wanted"), [("auto", None), ("true", True), ("false", False)])
def test_unsafe_interrupts_are_a_switch_with_a_third_position(
    host: Host, etc: Path, typed: str, wanted: bool | None
) -> None:
    (etc / "config.yaml").write_text(f"devices:\n  unsafe_interrupts: {typed}\n")
    assert config.load(host).devices.unsafe_interrupts is wanted


@pytest.mark.parametrize("name", ["no", "on", "null", "root", "tpu-users", "_apt", "0", "990"])
def test_the_name_of_a_group_stays_text_whatever_yaml_makes_of_it(host: Host, etc: Path, name: str) -> None:
    (etc / "config.yaml").write_text(f"devices:\n  group: {name}\n")
    assert config.load(host).devices.group == name


def test_an_address_that_yaml_takes_for_a_number_stays_an_address(host: Host, etc: Path) -> None:
    # By YAML 1.1 this is the base 60 number 4.0.
    (etc / "config.yaml").write_text("devices:\n  exclude:\n    - 0000:00:04.0\n")
    assert config.load(host).devices.exclude == {parse_address("0000:00:04.0")}


# What is refused --------------------------------------------------------------------------------------------------

# The text of the file, then the line, the key and a part of the reason that the error must name.
BAD = {
    "an unknown key that is nearly one": ("devices:\n  modee: 0666\n", 2, "devices.modee", "did you mean mode?"),
    "an unknown section that is nearly one": ("device:\n  mode: 0666\n", 1, "device", "did you mean devices?"),
    "an unknown key unlike any": ("devices:\n  zzz: 1\n", 2, "devices.zzz", "mode, group, exclude"),
    "a key with another case": ("devices:\n  Mode: 0666\n", 2, "devices.Mode", "did you mean mode?"),
    "a section that is a list": ("devices:\n- mode\n", 2, "devices", "keys with values"),
    "a section that is a value": ("devices: 0666\n", 1, "devices", "keys with values"),
    "a section that is null": ("devices: null\n", 1, "devices", "keys with values"),
    "a list at the top": ("- devices\n", 1, "", "keys with values"),
    "a value at the top": ("devices\n", 1, "", "keys with values"),
    "a quoted nothing at the top": ('""\n', 1, "", "keys with values"),
    "the same key twice": (
        "devices:\n  mode: 0666\n  group: tpu\n  mode: 0660\n",
        4,
        "devices.mode",
        "first on line 2",
    ),
    "the same key twice, once in quotes": (
        'devices:\n  mode: 0666\n  "mode": 0660\n',
        3,
        "devices.mode",
        "first on line 2",
    ),
    "the same section twice": ("devices: {}\n\ndevices: {}\n", 3, "devices", "first on line 1"),
    "a mode in decimal": ("devices:\n  mode: 666\n", 2, "devices.mode", '"0666"'),
    "a mode as Python writes it": ("devices:\n  mode: 0o666\n", 2, "devices.mode", '"0666"'),
    "a mode of five digits": ("devices:\n  mode: 00666\n", 2, "devices.mode", '"0666"'),
    "a mode with an execute bit": ("devices:\n  mode: 0777\n", 2, "devices.mode", "'0777'"),
    "a mode that sets the user id": ("devices:\n  mode: 4666\n", 2, "devices.mode", "'4666'"),
    "a mode with a digit that is not octal": ("devices:\n  mode: 0668\n", 2, "devices.mode", "'0668'"),
    "a mode with a digit that is not ASCII": ("devices:\n  mode: 066\u0666\n", 2, "devices.mode", '"0666"'),
    "a mode in letters": ("devices:\n  mode: rw-rw-rw-\n", 2, "devices.mode", "'rw-rw-rw-'"),
    "a mode without a value": ("devices:\n  mode:\n", 2, "devices.mode", '"0666"'),
    "a mode that is null": ("devices:\n  mode: ~\n", 2, "devices.mode", "'~'"),
    "a mode that is a list": ("devices:\n  mode: [0666]\n", 2, "devices.mode", "one value"),
    "a mode that is keys": ("devices:\n  mode: {a: 1}\n", 2, "devices.mode", "one value"),
    "a group without a value": ("devices:\n  group:\n", 2, "devices.group", ""),
    "a group that is empty": ('devices:\n  group: ""\n', 2, "devices.group", ""),
    "a group with a line end": ("devices:\n  group: |\n    tpu\n  mode: 0666\n", 2, "devices.group", ""),
    "a group with a zero byte": ('devices:\n  group: "a\\0b"\n', 2, "devices.group", ""),
    "a group with half a character": ('devices:\n  group: "\\ud800"\n', 2, "devices.group", ""),
    "a group number that the kernel cannot hold": ("devices:\n  group: 99999999999\n", 2, "devices.group", ""),
    "the group number that means no change": ("devices:\n  group: 4294967295\n", 2, "devices.group", ""),
    "a switch that says yes": ("devices:\n  allow_no_iommu: yes\n", 2, "devices.allow_no_iommu", "true or false"),
    "a switch that says no": ("devices:\n  allow_no_iommu: no\n", 2, "devices.allow_no_iommu", "true or false"),
    "a switch that says on": (
        "devices:\n  unsafe_interrupts: on\n",
        2,
        "devices.unsafe_interrupts",
        "auto, true or false",
    ),
    "a switch that says off": (
        "devices:\n  unsafe_interrupts: off\n",
        2,
        "devices.unsafe_interrupts",
        "auto, true or false",
    ),
    "a switch that is a number": ("devices:\n  allow_no_iommu: 1\n", 2, "devices.allow_no_iommu", "true or false"),
    "a switch in quotes": ('devices:\n  allow_no_iommu: "false"\n', 2, "devices.allow_no_iommu", "true or false"),
    "a switch without a value": ("devices:\n  allow_no_iommu:\n", 2, "devices.allow_no_iommu", "true or false"),
    "an excluded address that is none": (
        "devices:\n  exclude:\n  - 0000:00:04.8\n",
        3,
        "devices.exclude",
        "'0000:00:04.8'",
    ),
    "an excluded address that leads elsewhere": (
        "devices:\n  exclude: [../../etc]\n",
        2,
        "devices.exclude",
        "PCI address",
    ),
    "excluded addresses that are no list": ("devices:\n  exclude: 0000:00:04.0\n", 2, "devices.exclude", "list"),
    "excluded addresses without a value": ("devices:\n  exclude:\n", 2, "devices.exclude", "list"),
    "a list in the list of excluded addresses": ("devices:\n  exclude: [[a]]\n", 2, "devices.exclude", "one value"),
    "ids of three numbers": (
        "devices:\n  generations:\n    v9: 1ae0:0062:1ae0\n",
        3,
        "devices.generations.v9",
        "four ids",
    ),
    "generations as a list": ("devices:\n  generations: [v9]\n", 2, "devices.generations", "keys with values"),
    "a generation that is known": (
        "devices:\n  generations:\n    v5p: 1ae0:0099:1ae0:00ad\n",
        3,
        "devices.generations.v5p",
        "known already",
    ),
    "a generation with known ids": (
        "devices:\n  generations:\n    v9: 1ae0:006F:1ae0:00D1\n",
        3,
        "devices.generations.v9",
        "v6e",
    ),
    "two generations with the same ids": (
        "devices:\n  generations:\n    a: 1ae0:0001:1ae0:0001\n    b: 1ae0:0001:1ae0:0001\n",
        4,
        "devices.generations.b",
        "a (1ae0:0001:1ae0:0001)",
    ),
    "a generation without a name": (
        'devices:\n  generations:\n    "": 1ae0:0001:1ae0:0001\n',
        3,
        "devices.generations",
        "",
    ),
    "a generation whose name is a list": (
        "devices:\n  generations:\n    [a]: 1ae0:0001:1ae0:0001\n",
        3,
        "devices.generations",
        "",
    ),
    "a generation whose name would break a table": (
        'devices:\n  generations:\n    "a\\nb": 1ae0:0001:1ae0:0001\n',
        3,
        "devices.generations",
        "",
    ),
    "a merge key": ("devices:\n  <<: {mode: 0666}\n", 2, "devices.<<", "no key"),
    "an alias of the wrong kind": ("devices: &all\n  exclude: *all\n", 1, "devices.exclude", "list"),
    "a key with a line end": ('"a\\nb": 1\n', 1, "", "no key"),
    "a key that is a list": ("? [a]\n: 1\n", 1, "", "no key"),
}


@pytest.mark.parametrize(("text", "line", "key", "reason"), BAD.values(), ids=BAD)
def test_bad_input_is_named_by_file_line_and_key(
    host: Host, etc: Path, text: str, line: int, key: str, reason: str
) -> None:
    (etc / "config.yaml").write_text(text)
    said = fault_in(host)
    assert said.startswith(f"cannot read /etc/tpu-agent/config.yaml: line {line}: {key}")
    assert reason in said


# The text of the file, then where in it the error must point.
BROKEN = {
    "a tab as indentation": ("devices:\n\tmode: 0666\n", "line 2, column 1"),
    "a tab after a value": ('devices:\n  mode: "0666"\t\n  group: tpu\n', "line 2, column 15"),
    "a tab after a plain value": ("devices:\n  group: tpu\t\n  mode: 0666\n", "line 2, column 13"),
    "a bracket that is not closed": ("devices: {mode: 0666\n# end", "line 2, column 6"),
    "a quote that is not closed": ('devices:\n  group: "tpu\n# end', "line 3, column 6"),
    "a key in the wrong column": ("devices:\n  mode: 0666\n group: tpu\n", "line 3, column 2"),
    "a value on two keys": ("devices: mode: 0666\n", "line 1, column 14"),
    "several documents": ("devices: {}\n---\ndevices: {}\n", "line 2, column 1"),
    "an alias of nothing": ("devices: *nothing\n", "line 1, column 10"),
    "an unknown escape": ('devices:\n  group: "\\q"\n', "line 2, column 12"),
    "a character that no text has": ("devices:\n  group: a\0b\n", ""),
    "an escape beyond the last character": ('devices:\n  group: "\\UFFFFFFFF"\n', ""),
    "more brackets than anybody can follow": ("[" * 5000, ""),
    "a version of YAML that does not fit into a number": ("%YAML 1." + "1" * 5000 + "\n---\n", ""),
}


@pytest.mark.parametrize(("text", "where"), BROKEN.values(), ids=BROKEN)
def test_what_is_not_yaml_is_named_by_file_line_and_column(host: Host, etc: Path, text: str, where: str) -> None:
    (etc / "config.yaml").write_text(text)
    assert fault_in(host).startswith(f"cannot read /etc/tpu-agent/config.yaml: {where}")


def test_bytes_that_are_not_utf8_are_refused_and_not_replaced(host: Host, etc: Path) -> None:
    (etc / "config.yaml").write_bytes(b"devices:\n  group: caf\xe9\n")
    assert fault_in(host).startswith("cannot read /etc/tpu-agent/config.yaml: ")


def test_a_fault_in_a_drop_in_names_the_drop_in(host: Host, etc: Path) -> None:
    (etc / "config.yaml").write_text("devices:\n  mode: 0666\n")
    (etc / "config.d/50-site.yaml").write_text("# ours\ndevices:\n  mode: 666\n")
    assert fault_in(host).startswith("cannot read /etc/tpu-agent/config.d/50-site.yaml: line 3: devices.mode: ")


@pytest.mark.parametrize("name", ["config.yaml", "config.d/50-site.yaml"])
def test_a_folder_in_the_place_of_a_file_is_an_error(host: Host, etc: Path, name: str) -> None:
    (etc / name).mkdir()
    assert fault_in(host).startswith(f"cannot read /etc/tpu-agent/{name}: ")


@pytest.mark.parametrize("name", ["config.yaml", "config.d/50-site.yaml"])
def test_a_file_that_cannot_be_opened_is_an_error(host: Host, etc: Path, name: str) -> None:
    (etc / name).symlink_to(etc / name)
    assert fault_in(host).startswith(f"cannot read /etc/tpu-agent/{name}: ")


def test_a_folder_of_drop_ins_that_cannot_be_opened_is_an_error(host: Host, etc: Path) -> None:
    (etc / "config.d").rmdir()
    (etc / "config.d").symlink_to(etc / "config.d")
    assert fault_in(host).startswith("cannot read /etc/tpu-agent/config.d: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_the_caller_may_not_read_is_an_error(host: Host, etc: Path) -> None:
    (etc / "config.yaml").touch(mode=0)
    assert fault_in(host).startswith("cannot read /etc/tpu-agent/config.yaml: ")


# Which files are read ---------------------------------------------------------------------------------------------


def test_drop_ins_are_merged_key_by_key_in_the_order_of_their_names(host: Host, etc: Path) -> None:
    (etc / "config.yaml").write_text("devices:\n  mode: 0600\n  group: first\n  exclude: [00:01.0]\n")
    (etc / "config.d/90-last.yaml").write_text("devices:\n  mode: 0660\n")
    (etc / "config.d/10-early.yml").write_text(
        "devices:\n  mode: 0644\n  group: second\n  exclude: [00:02.0, 00:03.0]\n"
    )
    (etc / "config.d/50-notes.txt").write_text("devices:\n  group: unread\n")
    policy = config.load(host).devices
    assert policy == Policy(
        mode=0o660, group="second", exclude=frozenset({parse_address("00:02.0"), parse_address("00:03.0")})
    )


def test_drop_ins_add_generations_one_by_one_and_may_correct_one(host: Host, etc: Path) -> None:
    (etc / "config.d/1.yaml").write_text(
        "devices:\n  generations:\n    a: 1ae0:0001:1ae0:0001\n    b: 1ae0:0002:1ae0:0002\n"
    )
    (etc / "config.d/2.yaml").write_text(
        "devices:\n  generations:\n    b: 1ae0:0003:1ae0:0003\n    c: 1ae0:0002:1ae0:0002\n"
    )
    added = config.load(host).devices.generations[len(GENERATIONS) :]
    assert {one.name: str(one.ids) for one in added} == {
        "a": "1ae0:0001:1ae0:0001",
        "b": "1ae0:0003:1ae0:0003",
        "c": "1ae0:0002:1ae0:0002",
    }


def test_a_file_named_on_the_command_line_is_read_alone(host: Host, etc: Path, tmp_path: Path) -> None:
    (etc / "config.yaml").write_text("devices:\n  mode: 0600\n")
    (etc / "config.d/1.yaml").write_text("devices:\n  group: unread\n")
    (tmp_path / "other.yaml").write_text("devices:\n  unsafe_interrupts: true\n")
    assert config.load(host, "/other.yaml").devices == Policy(unsafe_interrupts=True)


@pytest.mark.parametrize("file", ["/missing.yaml", "/etc", "/etc/tpu-agent/config.d/x/y.yaml"])
def test_a_file_named_on_the_command_line_must_be_there(host: Host, etc: Path, file: str) -> None:
    (etc / "config.yaml").touch()
    assert fault_in(host, file).startswith(f"cannot read {file}: ")


def test_an_empty_name_on_the_command_line_is_not_the_default_file(host: Host, etc: Path) -> None:
    (etc / "config.yaml").touch()
    fault_in(host, "")


def test_nothing_is_half_applied_when_the_last_of_several_files_is_bad(host: Host, etc: Path) -> None:
    (etc / "config.yaml").write_text("devices:\n  mode: 0600\n")
    (etc / "config.d/9.yaml").write_text("devices:\n  mode: 0600\n  gruop: x\n")
    assert "config.d/9.yaml: line 3: devices.gruop: " in fault_in(host)


# What is printed --------------------------------------------------------------------------------------------------


def test_what_is_printed_says_where_each_value_comes_from(host: Host, etc: Path) -> None:
    (etc / "config.yaml").write_text("devices:\n  mode: 0660\n")
    (etc / "config.d/1.yaml").write_text("devices:\n\n  group: tpu\n")
    lines = config.render(config.explain(config.load(host))).splitlines()
    assert [" ".join(line.split()) for line in lines][:7] == [
        "devices:",
        "mode: 0660 # /etc/tpu-agent/config.yaml:2",
        "group: tpu # /etc/tpu-agent/config.d/1.yaml:3",
        "exclude: [] # default",
        "allow_no_iommu: false # default",
        "unsafe_interrupts: auto # default",
        "tpu_env:",
    ]


_hexadecimal = st.integers(0, 0xFFFF).map("{:04x}".format)
_ids = st.tuples(_hexadecimal, _hexadecimal, _hexadecimal, _hexadecimal).map(":".join)
_addresses = st.builds(
    "{:04x}:{:02x}:{:02x}.{}".format,
    st.integers(0, 0xFFFFF),
    st.integers(0, 255),
    st.integers(0, 31),
    st.integers(0, 7),
)
_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,12}", fullmatch=True) | st.text(max_size=6)
_devices = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["0666", "0660", "0600", "0644"]).map(json.dumps),
        "group": _names.map(json.dumps) | st.integers(0, 70000).map(str),
        "exclude": st.lists(_addresses, max_size=3).map(json.dumps),
        "generations": st.dictionaries(_names, _ids, max_size=3).map(json.dumps),
        "allow_no_iommu": st.sampled_from(["true", "false"]),
        "unsafe_interrupts": st.sampled_from(["auto", "true", "false"]),
    },
)


@given(_devices)
def test_what_is_printed_feeds_back_to_the_same_configuration(devices: dict[str, str]) -> None:
    with host_with("devices:\n" + "".join(f"  {key}: {typed}\n" for key, typed in devices.items())) as host:
        try:
            first = config.load(host)
        except ConfigError:
            return
    with host_with(config.render(config.explain(first))) as host:
        assert _unordered(config.load(host).devices) == _unordered(first.devices)


def _unordered(policy: Policy) -> tuple[Policy, frozenset[Generation]]:
    """Generations are found by their ids, so their order means nothing."""
    return replace(policy, generations=()), frozenset(policy.generations)


_fragments = st.sampled_from(
    [
        *("devices", "mode", "group", "exclude", "generations", "allow_no_iommu", "0666", "666", "true", "yes", "~"),
        *(
            ":",
            ": ",
            "\n",
            "\n  ",
            "\n    ",
            "- ",
            "[",
            "]",
            "{",
            "}",
            ",",
            '"',
            "'",
            "\\",
            "\\U",
            "&a ",
            "*a",
            "<<",
            "? ",
        ),
        *("| ", "> ", "#", "%", "%YAML 1.1", "!", "!!int ", "---", "...", "\t", "\u2028", "\x85", "\x0c"),
        *("1ae0:0001:1ae0:0001", "0000:00:04.0"),
    ]
)
_texts = st.lists(_fragments, max_size=25).map("".join) | st.text() | st.binary()


@given(_texts)
def test_no_text_raises_anything_but_a_configuration_error_of_one_line(text: str | bytes) -> None:
    with host_with(text) as host:
        try:
            config.load(host)
            said = "cannot read /etc/tpu-agent/config.yaml: "
        except ConfigError as fault:
            said = str(fault)
    assert said.isprintable()
    assert said.startswith("cannot read /etc/tpu-agent/config.yaml: ")
