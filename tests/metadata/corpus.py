"""Which maps would hurt a reader of tpu-env? Random ones, the same for the same seed, and documents that mean them.

For the tests here and for a guest's: `maps(seed, count)`, and `one_map(seed, count)` whose names are all different.
"""

from __future__ import annotations

import random
import re
import string
import unicodedata
from collections.abc import Iterator

_FRAGMENTS = (
    *('"', "'", "`", "$", "\\", "\\\\", '\\"', "\\n", "$(", "${HOME}", "$HOME", "$$", "$'", '$"', "`touch canary`"),
    *(
        "$(touch canary)",
        "; touch canary;",
        "\t",
        " ",
        "  ",
        "#",
        " #",
        "!",
        "!!",
        "*",
        "?",
        "[",
        "]",
        "{a,b}",
        "~",
        "|",
    ),
    *(
        "&",
        "&&",
        "<",
        ">",
        "(",
        ")",
        "%",
        "%s",
        "=",
        ":",
        ": ",
        "- ",
        ",",
        "@",
        "^",
        "é",
        "日本",
        "\U0001f600",
        "\u00a0",
    ),
    *("\ufeff", "\u202e", "0", "007", "1_000", "10:30", "true", "no", "null", "~", "2024-01-02", "v6e-8", "true,false"),
    *("\\\t", "'\"'", "\x81\x82".encode("latin-1").decode("cp1252", "replace"), "a" * 300),
)
_UNWRITABLE = (
    "\n",
    "\r\n",
    "\0",
    "\x07",
    "\x1b[31m",
    "\x7f",
    "\x85",
    "\u2028",
    "\ufffe",
    "\ufdd0",
    "\U0010ffff",
    "\n\n",
)
_BAD_NAMES = (
    "agent-worker-number",
    "a.b",
    "9x",
    "",
    " ",
    "A B",
    "é",
    "A=B",
    "$(x)",
    "UID",
    "PATH",
    "LD_PRELOAD",
    "PS1",
)
_NAME_FIRST = string.ascii_letters + "_"
_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_.,:/+@-]*[A-Za-z0-9_./]|[A-Za-z0-9_./]")


def maps(seed: int, count: int) -> Iterator[dict[str, str]]:
    """So many maps, each with something to write; some names and values in them are such that no reader takes them."""
    rng = random.Random(seed)  # noqa: S311  no secret
    for number in range(count):
        names = {_name(rng) for _ in range(rng.randint(0, 4))}
        found = {name: _value(rng) for name in names}
        if number % 10 == 0:
            found[rng.choice(_BAD_NAMES)] = _value(rng)
        if number % 7 == 0:
            found[_name(rng)] = _value(rng) + rng.choice(_UNWRITABLE) + _value(rng)
        found[f"SURE_{number}"] = _value(rng)
        yield found


def one_map(seed: int, count: int) -> dict[str, str]:
    """The entries of so many maps in one, under names that are all different."""
    entries = (value for one in maps(seed, count) for value in one.values())
    return {f"N{number}": value for number, value in enumerate(entries)}


def as_yaml(entries: dict[str, str], seed: int = 0) -> str:
    """A document that means this map, in all the ways to write a scalar on one line."""
    rng = random.Random(seed)  # noqa: S311  no secret
    return "".join(f"{_scalar(name, rng)}: {_scalar(value, rng)}\n" for name, value in entries.items())


def writable(name: str, value: str) -> bool:
    """The stated rule, from the other end: by Unicode's own categories."""
    return name not in _BAD_NAMES and all(
        sign == "\t" or (unicodedata.category(sign) not in {"Cc", "Zl", "Zp", "Cs"} and not _no_character(sign))
        for sign in value
    )


def _no_character(sign: str) -> bool:
    return ord(sign) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(sign) <= 0xFDEF


def _name(rng: random.Random) -> str:
    rest = "".join(rng.choices(_NAME_FIRST + string.digits, k=rng.randint(0, 8)))
    return "N_" + rng.choice(_NAME_FIRST) + rest  # a prefix that no shell has a use for


def _value(rng: random.Random) -> str:
    if rng.random() < 0.2:
        return "".join(chr(rng.choice((*range(0x20, 0x7F), *range(0xA0, 0x250)))) for _ in range(rng.randint(0, 20)))
    return "".join(rng.choices(_FRAGMENTS, k=rng.randint(0, 5)))


def _scalar(text: str, rng: random.Random) -> str:
    if _PLAIN.fullmatch(text) and ": " not in text and rng.random() < 0.5:
        return text
    simple = all(sign == "\t" or (sign.isprintable() and sign not in "\x85\ufeff") for sign in text)
    if simple and rng.random() < 0.6:
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_escaped(sign) for sign in text) + '"'


def _escaped(sign: str) -> str:
    if sign in '"\\':
        return "\\" + sign
    if " " <= sign <= "~":
        return sign
    return f"\\x{ord(sign):02x}" if ord(sign) < 0x100 else f"\\U{ord(sign):08x}"
