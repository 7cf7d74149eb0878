"""Does an editor take exactly the configurations that the agent takes, but for what is written down?

Texts are made of values as somebody may type them, good ones, nearly good ones and quite other ones.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from manual.kinds import KINDS
from manual.prose import UNSEEN, Unseen
from tests.editor import as_python, faults
from tpuagent import config
from tpuagent import schema as readers
from tpuagent.containers import typed
from tpuagent.errors import ConfigError
from tpuagent.host import Host
from tpuagent.metadata import policy
from tpuagent.schema import Field, MapOf, Reader, Schema

Some = st.SearchStrategy[str]


def fault_of(text: str) -> str:
    """What the agent says of it, nothing if it takes it."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        try:
            config.load(Host("/"), file.name)
        except ConfigError as fault:
            return str(fault)
    return ""


# What is written down ---------------------------------------------------------------------------------------------

# These concern single values, and no such value is made below.
_NAMES = {readers.read_account, typed.read_image, typed.read_unit_name, policy.read_name}
_PATHS = {policy.read_path, policy.read_path_or_off, typed.read_socket}
_NUMBERS = {
    readers.read_account, policy.read_wait_s, typed.read_memory, typed.read_cpus, typed.read_ulimit,
    typed.read_log_size, typed.read_log_files, typed.read_grace_s,
}  # fmt: skip
# These concern several values together: what the agent says of them.
_TOGETHER = ("is known already", "so it needs network: host")


def unseen_in_quotes(read: Reader, text: str) -> bool:
    return (
        text in ("off", "auto")
        or (read in _PATHS and not text.isprintable())
        or (read in _NUMBERS and bool(re.fullmatch("[0-9.:]+", text)))
    )


def unseen_bare(read: Reader, text: str) -> bool:
    number = bool(re.fullmatch("[0-9.]+", text)) and not (read is readers.read_account and text.isdigit())
    return (read in _NAMES and (text in ("true", "false", "null") or number)) or (
        read is typed.read_value and text in ("yes", "no", "on", "off", "y", "n")
    )


@pytest.mark.parametrize("unseen", UNSEEN, ids=lambda unseen: unseen.example)
def test_what_is_written_down_as_a_difference_is_one(unseen: Unseen) -> None:
    assert (not fault_of(unseen.example), not faults(unseen.example)) == (unseen.taken, not unseen.taken)


# Values -----------------------------------------------------------------------------------------------------------

_WORDS = [
    *("", "auto", "off", "true", "false", "null", "yes", "no", "on", "host", "bridge", "none", "missing", "always"),
    *("never", "unlimited", "unlimited:5", "5:unlimited", "root", "tpu-users", "0000:00:05.0", "00:1f.7", "00:20.0"),
    *("1ae0:0099:1ae0:0111", "1ae0:0042:1ae0:0111", "1AE0:001F:1ae0:0111", "512m", "5m", "6m", "6143k", "6144k", "2g"),
    *("2gb", "1t", "tcp:80", "tcp:0", "tcp:65535", "tcp:65536", "udp:80", "/run/x.sock", "/", "//a", "/a/", "/a/../b"),
    *("/a:/b", "/a:/b:ro", "/a:/b:rx", "/:/b", "/a:/", "a:b", "gcr.io/p/i:1", "Gcr.io/P/i", "i@sha256:00"),
]  # fmt: skip
_SIGNS = "/.:@-_~$ 0179aAfFgx\n\t\x00\x7f#é\u0663"


def quoted(text: str) -> str:
    """As a scalar in quotes, whatever signs it has."""
    return '"' + "".join(one if one.isascii() and one.isalnum() else f"\\U{ord(one):08x}" for one in text) + '"'


@st.composite
def nearly(draw: st.DrawFn, texts: Some) -> str:
    """One of the texts with one sign more, less, or another one."""
    text = draw(texts)
    place = draw(st.integers(0, len(text)))
    sign: str = draw(st.sampled_from(["", *_SIGNS]))
    return text[:place] + sign + text[place + draw(st.integers(0, 1)) :]


@cache
def fitting(pattern: str) -> Some:
    return st.from_regex(as_python(pattern), fullmatch=True)


@cache
def values(read: Reader) -> Some:
    """What somebody may type for a value."""
    pattern = KINDS[read].json.get("pattern")
    texts = st.sampled_from(_WORDS) | st.text(max_size=6)
    if pattern:
        texts = fitting(pattern) | nearly(fitting(pattern)) | texts
    numbers = st.integers(-2, 2000) | st.integers(-1, 2**65) | st.sampled_from([6291455, 6291456, 2**32 - 1])
    decimals = st.tuples(st.integers(0, 20000), st.integers(1, 9)).map(lambda pair: f"{pair[0]}.{pair[1]}")
    bare = st.sampled_from(_WORDS) | numbers.map(str) | decimals
    return texts.filter(lambda text: not unseen_in_quotes(read, text)).map(quoted) | bare.filter(
        lambda text: not unseen_bare(read, text)
    )


# Texts ------------------------------------------------------------------------------------------------------------

# No key holds these. Nothing at all is a section whose keys are all comments.
_OTHERS = st.sampled_from(["[]", "{}", "[a]", "{a: 1}", "[[a]]", "5", '""', "true", ""])


def texts(below: Schema | Field | MapOf) -> Some:
    """What somebody may write for a key."""
    if isinstance(below, Field):
        if below.is_list:
            items = st.lists(values(below.read).filter(bool), max_size=3)
            return items.map(lambda some: f"[{', '.join(some)}]") | values(below.read) | _OTHERS
        return values(below.read) | _OTHERS.filter(lambda text: not unseen_bare(below.read, text))
    if isinstance(below, MapOf):
        known = sorted({key[0] for key, _ in below.defaults} | {"nofile"})
        names = st.sampled_from(known) | fitting(below.name) | nearly(fitting(below.name))
        some = st.dictionaries(names, st.deferred(lambda: texts(below.below)), max_size=2)
        return mapping(some) | _OTHERS
    keys = {name: st.deferred(lambda one=one: texts(one)) for name, one in below.items()}  # type: ignore[misc]
    chosen = st.lists(st.sampled_from([*below] * 9 + ["unknown"]), unique=True, max_size=3)
    return (
        mapping(
            chosen.flatmap(lambda names: st.fixed_dictionaries({name: keys.get(name, st.just("1")) for name in names}))
        )
        | _OTHERS
    )


def mapping(some: st.SearchStrategy[dict[str, str]] | st.SearchStrategy[Mapping[str, str]]) -> Some:
    return some.map(lambda pairs: "{" + ", ".join(f"{quoted(name)}: {text}" for name, text in pairs.items()) + "}")


def every_field(below: Schema | Field | MapOf, text: str = "%s") -> Iterator[tuple[str, Some]]:
    """For each field a text with a place for what is typed, and that."""
    if isinstance(below, Field):
        yield text, texts(below)
    elif isinstance(below, MapOf):
        name = "nofile" if re.fullmatch(below.name, "nofile") and not re.fullmatch(below.name, "mine") else "mine"
        yield from every_field(below.below, text % f"{{{name}: %s}}")
    else:
        for name, one in below.items():
            yield from every_field(one, text % f"{{{name}: %s}}")


FIELDS = dict(every_field(config.SCHEMA))


def agree(text: str) -> None:
    fault = fault_of(text)
    assume(not any(words in fault for words in _TOGETHER))
    assert bool(fault) == bool(faults(text)), (text, fault, faults(text))


@pytest.mark.parametrize("text", FIELDS)
@given(data=st.data())
def test_an_editor_and_the_agent_agree_on_what_is_typed_for_a_key(text: str, data: st.DataObject) -> None:
    agree(text % data.draw(FIELDS[text]))


@given(texts(config.SCHEMA))
def test_an_editor_and_the_agent_agree_on_a_whole_configuration(text: str) -> None:
    agree(text)


@pytest.mark.parametrize(
    "text",
    [
        "device: {}",
        "devices: {modee: 0666}",
        "devices: []",
        "containers: {Vbar: {}}",
        "containers: {vbar: {ulimits: {nofiles: 5}}}",
        'devices: {mode: "0777"}',
        'tpu_env: {mode: "0200"}',
        "devices: {allow_no_iommu: yes}",
        "devices: {exclude: 0000:00:04.0}",
        "devices: {generations: {v9x: 1ae0:0042:1ae0:0111}}",
        "tpu_env: {ready_wait_s: 91}",
        "environment: {A: 'x#y'}",
        "containers: {vbar: {network: hots}}",
        "containers: {vbar: {memory: 2gb}}",
        "containers: {vbar: {memory: 5m}}",
        "containers: {vbar: {cpus: 0}}",
        "containers: {vbar: {mounts: [/a]}}",
        "containers: {vbar: {image: Gcr.io/A}}",
    ],
)
def test_a_mistake_is_one_for_both(text: str) -> None:
    assert fault_of(text)
    assert faults(text)
