"""Which image does a reference name? Text becomes a value. Pure."""

from __future__ import annotations

import re

from tpuagent.values import dataclass

_COMPONENT = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?P<name>(?:(?P<registry>(?:[A-Za-z0-9-]+\.)*[A-Za-z0-9-]+(?::[0-9]+)?)/)??{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_DOCKER_HUB = "docker.io"
_LONGEST = 512


@dataclass(frozen=True)
class Reference:
    """An image's name as an engine takes it. `name` has the registry in it if one was typed."""

    registry: str
    name: str
    tag: str
    digest: str

    @property
    def google(self) -> bool:
        """Whether its registry is Google's, so that a token of this machine's may be shown to it."""
        host = self.registry.lower()
        return host == "gcr.io" or host.endswith((".gcr.io", ".pkg.dev"))


def parse_reference(text: str) -> Reference:
    """ValueError when no engine would take it. A reference without tag and digest means the tag latest."""
    found = _REFERENCE.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError(f"{text!r} is not the name of an image; one looks like gcr.io/project/image:1.0")
    first, slash, _ = found["name"].partition("/")
    # As engines tell a registry from the first part of a name.
    registry = first if slash and ("." in first or ":" in first or first == "localhost") else _DOCKER_HUB
    return Reference(
        registry, found["name"], found["tag"] or ("" if found["digest"] else "latest"), found["digest"] or ""
    )
