"""Which engine do the contract tests run on?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines.engines import LIMITS, REAL, SOCKET, EngineAtHand
from tests.contract.engines.fake import FakeEngineAtHand
from tpuagent.containers.engine import Engine


@pytest.fixture(scope="session")
def real() -> Iterator[EngineAtHand | None]:
    """The engine of this machine, if it is to be used."""
    if not REAL:
        yield None
        return
    from tests.contract.engines.real import RealEngineAtHand

    with RealEngineAtHand(SOCKET) as engine:
        yield engine


@pytest.fixture(params=["real"] if REAL else ["docker", "podman"])
def at_hand(request: pytest.FixtureRequest, real: EngineAtHand | None, tmp_path: Path) -> Iterator[EngineAtHand]:
    """The simulated engines, or this machine's."""
    if real:
        yield real
        real.clean()
        return
    if os.environ.get("TPUAGENT_CONTRACT") == "real":
        pytest.skip("the real kernel is asked, not the simulated engine")
    simulated = FakeEngineAtHand(str(tmp_path), request.param)
    with simulated.fake:
        yield simulated


@pytest.fixture
def engine(at_hand: EngineAtHand) -> Engine:
    """The agent's hands."""
    return Engine(at_hand.socket_path, LIMITS)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for a container; it has a name of another one in it."""
    return f"tpu-agent-contract-{request.node.name.rpartition('[')[0][-24:].strip('_')}"
