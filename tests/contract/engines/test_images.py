"""How does an engine get an image, and what does it say when it does not?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.engines.archive import BUSYBOX, archive
from tests.contract.engines.engines import REAL, REPOSITORY, EngineAtHand, body, found, reference
from tpuagent.containers.engine import Engine
from tpuagent.containers.references import parse_reference
from tpuagent.errors import EngineRefused, ImageDenied, ImageUnknown


def _archive(*tags: str) -> bytes:
    return archive(Path(BUSYBOX).read_bytes() if REAL else b"any bytes", tags)


def _ignored(_: str) -> None:
    """What is said of the progress."""


def test_an_image_is_loaded_from_an_archive_and_found_by_its_name_and_id(
    at_hand: EngineAtHand, engine: Engine, tmp_path: Path
) -> None:
    names = [f"{REPOSITORY}:loaded-1", f"{REPOSITORY}:loaded-2"]
    for name in names:
        at_hand.forget(name)
        assert engine.image(name) is None
    file = tmp_path / "image.tar"
    file.write_bytes(_archive("loaded-1", "loaded-2"))
    assert sorted(engine.load(str(file))) == names
    image = engine.image(names[0])
    assert image
    assert names[0] in image.tags
    by_id = engine.image(image.id)
    assert by_id
    assert by_id.id == image.id
    for name in names:
        at_hand.forget(name)


def test_an_image_that_is_there_is_loaded_again_without_complaint(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "image.tar"
    file.write_bytes(_archive("lives"))
    before = engine.image(reference("lives"))
    assert engine.load(str(file)) == engine.load(str(file)) == [reference("lives")]
    after = engine.image(reference("lives"))
    assert before
    assert after
    if REAL:  # the archive has another content on the simulated engine
        assert before.id == after.id


@pytest.mark.parametrize("share", [0.0, 0.4, 0.9])
def test_an_archive_that_breaks_off_or_is_none_is_refused(engine: Engine, tmp_path: Path, share: float) -> None:
    whole = _archive("broken")
    file = tmp_path / "image.tar"
    # The list of what is in it is its last file.
    file.write_bytes(whole[: int(whole.rindex(b"manifest.json") * share)] or b"no archive")
    with pytest.raises(EngineRefused):
        engine.load(str(file))
    assert engine.image(f"{REPOSITORY}:broken") is None


def test_an_image_that_nobody_has_is_none(engine: Engine) -> None:
    assert engine.image("tpu-agent.test/unheard-of:1") is None
    assert engine.image("sha256:" + "0" * 64) is None


def test_a_pulled_image_has_its_digest_and_runs(at_hand: EngineAtHand, engine: Engine, name: str) -> None:
    wanted = at_hand.published("some/image")
    assert engine.image(wanted) is None
    said: list[str] = []
    engine.pull(wanted, None, said.append)
    assert said
    image = engine.image(wanted)
    assert image
    pinned = f"{parse_reference(wanted).name}@{at_hand.digest(wanted)}"
    # Not alone: to Podman each repository that has an image has every digest that it came with.
    assert pinned in image.digests
    by_digest = engine.image(pinned)
    assert by_digest
    assert by_digest.id == image.id
    assert engine.image(f"{wanted}@{at_hand.digest(wanted)}") == by_digest
    engine.create(name, {**body("lives"), "Image": wanted})
    assert found(engine, name).image_id == image.id
    engine.remove(name, force=True)
    at_hand.forget(wanted)


def test_an_image_is_pulled_by_its_digest(at_hand: EngineAtHand, engine: Engine) -> None:
    wanted = at_hand.published("some/other")
    pinned = f"{parse_reference(wanted).name}@{at_hand.digest(wanted)}"
    assert engine.image(pinned) is None
    engine.pull(f"{wanted}@{at_hand.digest(wanted)}", None, _ignored)
    assert engine.image(pinned)
    assert engine.image(wanted) is None
    at_hand.forget(pinned)


def test_to_pull_what_is_there_is_no_fault(at_hand: EngineAtHand, engine: Engine) -> None:
    wanted = at_hand.published("some/again")
    engine.pull(wanted, None, _ignored)
    first = engine.image(wanted)
    engine.pull(wanted, None, _ignored)
    assert engine.image(wanted) == first
    at_hand.forget(wanted)


def test_what_the_registry_does_not_have_is_unknown(at_hand: EngineAtHand, engine: Engine) -> None:
    published = parse_reference(at_hand.published("some/image"))
    for wanted in (at_hand.unpublished, f"{published.name}:unheard-of", f"{published.name}@sha256:{'0' * 64}"):
        with pytest.raises(ImageUnknown):
            engine.pull(wanted, None, _ignored)
        assert engine.image(wanted) is None


def test_what_is_not_for_everybody_is_denied_and_given_for_the_authorization(
    at_hand: EngineAtHand, engine: Engine
) -> None:
    wanted = at_hand.published("secret/image", secret=True)
    with pytest.raises(ImageDenied):
        engine.pull(wanted, None, _ignored)
    assert engine.image(wanted) is None
    engine.pull(wanted, at_hand.authorization, _ignored)
    assert engine.image(wanted)
    at_hand.forget(wanted)


@pytest.mark.skipif(not REAL, reason="the simulated engine has one registry, and reaches it")
def test_a_registry_that_does_not_answer_is_neither_unknown_nor_denied(engine: Engine) -> None:
    with pytest.raises(EngineRefused) as raised:
        engine.pull("localhost:1/some/image:1", None, _ignored)
    assert type(raised.value) is EngineRefused
    assert "connection refused" in raised.value.why


def test_what_is_no_name_of_an_image_is_unknown_without_asking(engine: Engine) -> None:
    with pytest.raises(ImageUnknown):
        engine.pull("No Image", None, _ignored)
