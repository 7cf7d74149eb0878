"""What the tests of the metadata share: a server, and a host's folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.metadata_server import FakeMetadataServer
from tpuagent.host import Host
from tpuagent.metadata.policy import TpuEnvPolicy

TPU_ENV = "TPU_ACCELERATOR_TYPE: 'v6e-8'\nTPU_WORKER_ID: '0'\n"


@pytest.fixture
def server() -> Iterator[FakeMetadataServer]:
    """A metadata server that has a tpu-env."""
    with FakeMetadataServer({"tpu-env": TPU_ENV}) as server:
        yield server


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A machine in a folder."""
    return Host(str(tmp_path))


@pytest.fixture
def policy() -> TpuEnvPolicy:
    """The default one; without root the file is of the user who runs the tests."""
    return TpuEnvPolicy(owner=str(os.getuid()))
