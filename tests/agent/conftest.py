"""Daemons that leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.agent.daemon import Daemon

StartDaemon = Callable[..., Daemon]


@pytest.fixture
def start() -> Iterator[StartDaemon]:
    """Start a daemon as Daemon.start does; it is gone after the test."""
    started: list[Daemon] = []

    def start_one(*arguments: object, **options: object) -> Daemon:
        started.append(Daemon.start(*arguments, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start_one
    for daemon in started:
        daemon.discard()
