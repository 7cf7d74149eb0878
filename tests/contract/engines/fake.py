"""The simulated engine, as the contract sees it."""

from __future__ import annotations

from contextlib import suppress

from tests.contract.engines.engines import COMMANDS, reference
from tests.fakes.engine import FakeEngine
from tests.fakes.engine_state import Refusal
from tests.fakes.engine_words import Docker, Podman
from tpuagent.containers.credentials import render_authorization

_TOKEN = "ya29.fake"  # noqa: S105  opens nothing


class FakeEngineAtHand:
    """An engine on a socket in a folder."""

    def __init__(self, folder: str, kind: str) -> None:
        self.podman = kind == "podman"
        self.socket_path = f"{folder}/engine.sock"
        self.fake = FakeEngine(self.socket_path, Podman() if self.podman else Docker())
        self.unpublished = "registry.test/nobody/nothing:1"
        self.authorization = render_authorization(_TOKEN)
        for tag in COMMANDS:
            self.fake.state.add_image(reference(tag))

    def pause(self, name: str) -> None:
        """As another client would."""
        self.fake.state.pause(name)

    def published(self, name: str, *, secret: bool = False) -> str:
        """In a registry that only the engine knows."""
        published = f"registry.test/{name}:1"
        self.fake.state.publish(published, _TOKEN if secret else None)
        return published

    def digest(self, reference: str) -> str:
        """The simulated registry's."""
        return self.fake.state.registry[reference].digest

    def forget(self, reference: str) -> None:
        """As another client would."""
        with suppress(Refusal):
            name, _ = self.fake.state.image(reference)
            self.fake.state.images.pop(name)

    def clean(self) -> None:
        """It goes with its folder."""
