"""Which kernel do the contract tests run on?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.fake import FakeKernel
from tests.contract.kernel import REAL, Kernel, untouched


@pytest.fixture(params=["real"] if REAL else ["6.1", "6.12"])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Kernel:
    """The simulated kernels, or this machine's."""
    if not REAL:
        return FakeKernel(str(tmp_path), request.param)
    from tests.contract.real import RealKernel

    return RealKernel()


@pytest.fixture
def function(kernel: Kernel) -> Iterator[str]:
    """A function without driver and override. Its address has a letter in it, if there is one that has."""
    lettered = [address for address in kernel.functions if any(character.isalpha() for character in address)]
    with untouched(kernel.host, (lettered or list(kernel.functions))[0]) as address:
        yield address


@pytest.fixture
def simulated(kernel: Kernel) -> FakeKernel:
    """The simulated kernel, for what no real kernel at hand can show."""
    if not isinstance(kernel, FakeKernel):
        pytest.skip("Debian's kernels have neither device cdevs nor no-IOMMU mode")
    return kernel
