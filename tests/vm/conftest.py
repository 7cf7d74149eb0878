"""What tests in a virtual machine start from: images, a guest that many share, and a way to boot more.

Nothing here is collected unless a path under `tests/vm` is named on the command line: `sudo pytest tests/vm`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from . import image, scenery
from .guest import Guest
from .machine import EIGHT_CHIPS, Machine
from .progress import Say, say_on_stderr
from .recipe import DISTRIBUTIONS, Distribution

HERE = Path(__file__).parent
# Not one of Google's by its firmware, so that no test has to serve metadata but those that are about it.
SHARED = Machine((*EIGHT_CHIPS, "network"), google=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "vm: boots a virtual machine; needs root")


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    asked = [Path(config.invocation_params.dir, argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(path == HERE or HERE in path.parents for path in asked) else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    not_root = pytest.mark.skip(reason="virtual machines need root (chroot, mounts): sudo pytest tests/vm")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.vm)
            if os.geteuid() != 0:
                item.add_marker(not_root)


class ChrootsBesideGuests(LoadScopeScheduling):  # type: ignore[misc]  # it comes without types
    """Guests stay in one process, which shares them among tests and has the processors that an emulated guest wants."""

    def _split_scope(self, nodeid: str) -> str:
        return "guests" if nodeid.startswith("tests/vm/") else "chroots"


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ChrootsBesideGuests:
    return ChrootsBesideGuests(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """Show the console of each guest that a failed test used."""
    report = yield
    if report.failed:
        for fixture in getattr(item, "funcargs", {}).values():
            for guest in fixture.guests if isinstance(fixture, Boot) else [fixture]:
                if isinstance(guest, Guest):
                    report.sections.append((f"console of {guest.name}", guest.console_tail()))
    return report


@pytest.fixture(scope="session")
def say(pytestconfig: pytest.Config) -> Say:
    """Progress for the person who waits, past pytest's capture of output."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    reporter = pytestconfig.pluginmanager.getplugin("terminalreporter")

    def write(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            if reporter:
                reporter.ensure_newline()
            say_on_stderr(line)  # the only way to the terminal from a process that runs a part of the tests

    return write


@pytest.fixture(scope="session", params=DISTRIBUTIONS, ids=lambda distribution: distribution.name)
def distribution(request: pytest.FixtureRequest) -> Distribution:
    found: Distribution = request.param
    return found


@pytest.fixture(scope="session")
def package(pytestconfig: pytest.Config) -> Path:
    """The newest package that was built."""
    return image.newest_package(pytestconfig.rootpath)


@pytest.fixture(scope="session")
def base_image(distribution: Distribution, say: Say) -> image.BootImage:
    """The distribution without the package."""
    return image.base_image(distribution, say)


@pytest.fixture(scope="session")
def package_image(distribution: Distribution, package: Path, say: Say) -> image.BootImage:
    """The distribution with the package, never booted."""
    return image.package_image(distribution, package, say)


@pytest.fixture(scope="session")
def docker_image(distribution: Distribution, package: Path, say: Say) -> image.BootImage:
    """The package in its default configuration beside Docker and a gcr.io, never booted."""
    return image.containers_image(distribution, package, scenery.DOCKER, say)


@pytest.fixture(scope="session")
def guest(distribution: Distribution, package_image: image.BootImage, say: Say) -> Iterator[Guest]:
    """One guest for all tests of a distribution: eight chips and a network function of the same vendor.

    Who changes something in it puts it back.
    """
    with Guest(package_image, SHARED, name=distribution.name, say=say) as booted:
        yield booted


@dataclass
class Boot:
    """Boots more guests for one test; each ends with the test, the last one first."""

    boot: Callable[..., Guest]
    guests: list[Guest]

    def __call__(self, machine: Machine = SHARED, **options: Any) -> Guest:
        """`options` are those of `Guest`, and `image` for another image than the one with the package."""
        return self.boot(machine, **options)


@pytest.fixture
def boot(request: pytest.FixtureRequest, distribution: Distribution, say: Say) -> Iterator[Boot]:
    guests: list[Guest] = []
    with ExitStack() as running:

        def start(machine: Machine, **options: Any) -> Guest:
            chosen = options.pop("image", None) or request.getfixturevalue("package_image")
            options.setdefault("name", f"{distribution.name}-{len(guests) + 2}")
            guests.append(running.enter_context(Guest(chosen, machine, say=say, **options)))
            return guests[-1]

        yield Boot(start, guests)
