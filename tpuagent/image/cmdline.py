"""How does the kernel read its command line? Pure.

White space separates parameters, double quotes protect it, `-` and `_` are the same in a name, the last of equal
parameters counts, and what follows a bare `--` is for init.
"""

from __future__ import annotations

_BLANKS = " \t\n\r\v\f"


def parse_cmdline(text: str) -> tuple[tuple[str, str | None], ...]:
    """Names, with `_` for `-`, and values; None for a parameter without `=`."""
    found: list[tuple[str, str | None]] = []
    for word in _tokens(text):
        if word == "--":
            break
        quoted = word.startswith('"')
        name, equals, value = word[quoted:].removesuffix('"' if quoted else "").partition("=")
        if not quoted and value.startswith('"'):
            value = value[1:].removesuffix('"')
        found.append((name.replace("-", "_"), value if equals else None))
    return tuple(found)


def last_value(text: str, name: str) -> str | None:
    """The value that counts; None when the parameter is not there, or has none."""
    return dict(parse_cmdline(text)).get(name.replace("-", "_"))


def satisfies(value: str | None, wanted: str) -> bool:
    """Whether a value says at least what is wanted: every word of a list, and not `off` besides."""
    words = (value or "").split(",")
    return set(wanted.split(",")) <= set(words) and (wanted == value or "off" not in words)


def _tokens(text: str) -> list[str]:
    tokens, word, quoted = [], "", False
    for sign in text.split("\0", 1)[0]:
        if sign in _BLANKS and not quoted:
            tokens += [word] if word else []
            word = ""
            continue
        quoted ^= sign == '"'
        word += sign
    return [*tokens, word] if word else tokens
