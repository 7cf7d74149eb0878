from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import tpuagent
from tests.vm import packages

from .root import Root, build_base, fresh_root

PROJECT = Path(__file__).parents[2]
# What an image for TPUs has besides the package, and cloud-init.
OF_AN_IMAGE = ("linux-image-cloud-amd64", "systemd-sysv", "docker.io", "cloud-init")


@pytest.fixture(scope="session")
def package() -> Path:
    built = PROJECT / f"dist/tpu-agent_{tpuagent.__version__}_all.deb"
    if os.geteuid() != 0 or not built.exists():
        pytest.fail(f"these tests need root and {built.name}: run them with `make vm-test`")
    return built


@pytest.fixture(scope="session")
def later_package(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages.later(package, tmp_path_factory.mktemp("later"))


@pytest.fixture(scope="session")
def earlier_package(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return packages.earlier(package, tmp_path_factory.mktemp("earlier"))


# Python 3.11 and 3.13.
@pytest.fixture(scope="session", params=["bookworm", "trixie"])
def base(request: pytest.FixtureRequest, package: Path) -> Path:
    return build_base(request.param, package)


@pytest.fixture(scope="session", params=["bookworm", "trixie"])
def image_base(request: pytest.FixtureRequest, package: Path) -> Path:
    return build_base(request.param, package, OF_AN_IMAGE)


@pytest.fixture
def image(image_base: Path) -> Iterator[Root]:
    """An image that lacks only the package."""
    with fresh_root(image_base) as root:
        yield root


@pytest.fixture
def root(base: Path) -> Iterator[Root]:
    with fresh_root(base) as root:
        yield root


@pytest.fixture
def installed(root: Root, package: Path) -> Root:
    root.install(package)
    return root
