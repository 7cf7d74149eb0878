"""How does a container get its image? Hands: the engine's own, then this machine's archives, then the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tpuagent.containers.archives import find_archive
from tpuagent.containers.credentials import render_authorization
from tpuagent.containers.objects import Image
from tpuagent.containers.references import Reference, parse_reference
from tpuagent.containers.spec import Spec
from tpuagent.errors import EngineRefused, EngineUnavailable, ImageDenied, ImageUnknown, TpuAgentError
from tpuagent.host import Host
from tpuagent.log import get_logger

log = get_logger()
Progress = Callable[[str], None]


class Store(Protocol):
    """What is needed of an engine."""

    def image(self, reference: str) -> Image | None:
        """The image that the engine has."""

    def pull(self, reference: str, authorization: str | None, progress: Progress) -> None:
        """Get it from its registry."""

    def load(self, path: str) -> list[str]:
        """Get what is in an archive; the names of the images."""


class Account(Protocol):
    """Who this machine is for a registry of Google's."""

    def token(self) -> str:
        """An access token. Raises TpuAgentError."""

    def describe(self) -> str:
        """The account and what it lacks, in words for an operator who was refused."""


def digest_of(image: Image, name: str) -> str:
    """The digest that the registry knows the image by; its id when it came from an archive."""
    return next((one.partition("@")[2] for one in image.digests if one.partition("@")[0] == name), image.id)


def fetch(host: Host, engine: Store, account: Account, spec: Spec, progress: Progress) -> None:
    """Let the engine have the image. Raises EngineUnavailable and EngineRefused."""
    reference = parse_reference(spec.image)
    before = engine.image(spec.image)
    if before is None and _load(host, engine, spec, reference):
        return
    if spec.pull == "never":
        if before is None:
            why = f"the engine does not have it and containers.{spec.name}.pull is never; load it, or change that"
            raise ImageUnknown(f"start from {spec.image}", why)
        return
    try:
        _pull(engine, account, spec.image, reference, progress)
    except EngineUnavailable:
        raise
    except TpuAgentError as fault:
        if before is None:
            raise
        log.warning("image_not_pulled", container=spec.name, image=spec.image, reason=str(fault))
        return
    after = engine.image(spec.image)
    if after is None:
        raise EngineRefused(f"pull {spec.image}", "the engine says that it has pulled it, and does not have it")
    facts = {"container": spec.name, "image": spec.image, "digest": digest_of(after, reference.name)}
    if before and before.id != after.id:
        log.warning("image_moved", **facts, before=digest_of(before, reference.name))
    else:
        log.info("image_pulled", **facts)


def _load(host: Host, engine: Store, spec: Spec, reference: Reference) -> bool:
    path, faults = find_archive(host, reference)
    for fault in faults:
        log.warning("archive_unreadable", reason=fault)
    if path is None:
        return False
    try:
        engine.load(host.at(path))
    except EngineRefused as fault:
        log.warning("archive_not_loaded", path=path, reason=str(fault))
        return False
    if engine.image(spec.image) is None:
        log.warning("archive_not_loaded", path=path, reason=f"after loading it the engine still has no {spec.image}")
        return False
    log.info("image_loaded", container=spec.name, image=spec.image, path=path)
    return True


def _pull(engine: Store, account: Account, image: str, reference: Reference, progress: Progress) -> None:
    """Anonymously first: a token that is stale breaks even the pull of a public image."""
    try:
        engine.pull(image, None, progress)
    except ImageDenied as fault:
        if not reference.google:
            raise
        try:
            token = account.token()
        except TpuAgentError as lost:
            raise EngineRefused(fault.action, f"{fault.why}; and there is no token: {lost.why}") from None
        try:
            engine.pull(image, render_authorization(token), progress)
        except ImageDenied as again:
            raise ImageDenied(again.action, f"{again.why}; {account.describe()}", again.status) from None
