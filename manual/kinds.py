"""What may stand for a value that a reader takes? In words, and as JSON schema; a test holds it to the readers.

The expressions are those that JavaScript and Python read alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpuagent import config
from tpuagent import schema as readers
from tpuagent.containers import typed
from tpuagent.devices.pci import GOOGLE_VENDOR, NO_TPUS
from tpuagent.metadata import policy


@dataclass(frozen=True)
class Kind:
    """What a value may be; `many` is what a list of them is a list of."""

    words: str
    json: Mapping[str, Any]
    many: str = ""


def _text(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{pattern}$"}


def _number(least: int, most: int, pattern: str) -> dict[str, Any]:
    """A whole number, or its digits in quotes, of which the size is not looked at."""
    return {"type": ["integer", "string"], "minimum": least, "maximum": most, "pattern": f"^{pattern}$"}


def _hexadecimal(number: int) -> str:
    """Four digits, in either case."""
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{number:04x}")


_HEX = "[0-9a-fA-F]"
_STEP = r"/(?!\.\.?(/|$))[^/\x00-\x1f\x7f]+"
_MOUNT_STEP = r"/(?!\.\.?([/:]|$))[^/:\x00]+"
_VARIABLE = "[A-Za-z_][A-Za-z0-9_]*"
_NO_TPU = "|".join(map(_hexadecimal, NO_TPUS))
_COMPONENT = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
_IMAGE = (
    rf"(([A-Za-z0-9-]+\.)*[A-Za-z0-9-]+(:[0-9]+)?/)?{_COMPONENT}(/{_COMPONENT})*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_PORT = "(?!0+$)([0-5]?[0-9]{1,4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_MOST_BYTES = 10**18 - 1
_BYTES, _GIBIBYTES = "[1-9][0-9]{0,17}", "[1-9][0-9]{0,8}"
_LEAST_KIBIBYTES = "(614[4-9]|61[5-9][0-9]|6[2-9][0-9]{2}|[7-9][0-9]{3}|[1-9][0-9]{4,14})"  # 6 MiB
_LEAST_MEBIBYTES = "([6-9]|[1-9][0-9]{1,11})"
_FREE: dict[str, Any] = {"type": ["string", "number", "boolean", "null"], "pattern": r"^[^\x00]*$"}

KINDS: Mapping[readers.Reader, Kind] = {
    readers.read_flag: Kind("`true` or `false`", {"type": "boolean"}),
    readers.read_auto_or_flag: Kind("`auto`, `true` or `false`", {"enum": ["auto", True, False]}),
    readers.read_mode: Kind('four octal digits without the execute bits, like `"0660"`', _text("0[0246]{3}")),
    readers.read_account: Kind("name or number", _number(0, 2**32 - 2, r"([A-Za-z_][A-Za-z0-9_.-]*\$?|[0-9]{1,10})")),
    config.read_address: Kind(
        "address like `0000:00:05.0`",
        _text(rf"({_HEX}{{4,8}}:)?{_HEX}{{2}}:[01]{_HEX}\.[0-7]"),
        "addresses like `0000:00:05.0`",
    ),
    config.read_ids: Kind(
        "four ids of four hexadecimal digits",
        _text(rf"(?!{_hexadecimal(GOOGLE_VENDOR)}:({_NO_TPU}):){_HEX}{{4}}(:{_HEX}{{4}}){{3}}"),
    ),
    policy.read_path: Kind("absolute path of a file", _text(f"({_STEP})+")),
    policy.read_path_or_off: Kind("absolute path of a file, or `off`", _text(f"(off|({_STEP})+)")),
    policy.read_file_mode: Kind('four octal digits, like `"0640"`', _text("0[46][0246]{2}")),
    policy.read_wait_s: Kind(
        f"seconds from 0 to {policy.LONGEST_WAIT_S}", _number(0, policy.LONGEST_WAIT_S, "[0-9]{1,2}")
    ),
    policy.read_name: Kind("name of a variable", _text(_VARIABLE), "names of variables"),
    policy.read_value_or_null: Kind(
        f"text of at most {policy.LONGEST_LINE // 2} characters that every reader of the file takes alike, or `null`",
        {
            "type": ["string", "number", "boolean", "null"],
            "pattern": rf"^[A-Za-z0-9_./:@%+,= ~!&*()\[\]{{}}<>;|?^-]{{0,{policy.LONGEST_LINE // 2}}}$",
        },
    ),
    typed.read_image: Kind(
        "name of an image", {"type": ["string", "null"], "pattern": f"^({_IMAGE})?$", "maxLength": 512}
    ),
    typed.read_text: Kind("any text", _FREE, "texts"),
    typed.read_value: Kind("any text, or `null`", {"type": ["string", "number", "null"], "pattern": _FREE["pattern"]}),
    typed.read_mount: Kind(
        "`SOURCE:TARGET` or `SOURCE:TARGET:ro`",
        _text(rf"(/|({_MOUNT_STEP})+):({_MOUNT_STEP})+(:(ro|rw)?)?"),
        "`SOURCE:TARGET` or `SOURCE:TARGET:ro`, both absolute paths",
    ),
    typed.read_network: Kind("`host`, `bridge` or `none`", {"enum": ["host", "bridge", "none"]}),
    typed.read_memory: Kind(
        "size of at least `6m`, or `off`",
        _number(6 * 1024**2, _MOST_BYTES, f"(off|{_BYTES}|{_LEAST_KIBIBYTES}k|{_LEAST_MEBIBYTES}m|{_GIBIBYTES}g)"),
    ),
    typed.read_cpus: Kind(
        "number of processors, like `1.5`, or `off`",
        {
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "exclusiveMaximum": 10000,
            "pattern": r"^(off|[0-9]{1,4}(\.[0-9]{1,3})?)$",
        },
    ),
    typed.read_ulimit: Kind(
        "number, `SOFT:HARD`, `unlimited` or `null`",
        {
            "type": ["integer", "string", "null"],
            "minimum": 0,
            "maximum": 2**63 - 1,
            "pattern": "^(unlimited(:unlimited)?|[0-9]{1,19}(:(unlimited|[0-9]{1,19}))?)$",
        },
    ),
    typed.read_log_size: Kind(
        "size, or `off`",
        _number(1, _MOST_BYTES, f"(off|{_BYTES}|[1-9][0-9]{{0,14}}k|[1-9][0-9]{{0,11}}m|{_GIBIBYTES}g)"),
    ),
    typed.read_log_files: Kind("number from 1 to 999", _number(1, 999, "[1-9][0-9]{0,2}")),
    typed.read_probe: Kind("`tcp:PORT`, or `off`", _text(f"(off|tcp:{_PORT})")),
    typed.read_pull: Kind("`missing`, `always` or `never`", {"enum": ["missing", "always", "never"]}),
    typed.read_grace_s: Kind("seconds from 0 to 300", _number(0, 300, "[0-9]{1,3}")),
    typed.read_unit_name: Kind("name", _text("[A-Za-z0-9][A-Za-z0-9_.@-]{0,100}"), "names"),
    typed.read_socket: Kind("absolute path, or `auto`", _text(f"(auto|({_STEP})+)")),
}
