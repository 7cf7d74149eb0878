"""What do the files answer by which a function gets a driver and loses it?"""

from __future__ import annotations

import errno

import pytest

from tests.contract.kernel import (
    DEVICES,
    DRIVERS,
    FOREIGN,
    VFIO,
    Kernel,
    attempt,
    bind,
    driver_of,
    override_of,
    set_override,
    take,
    unbind,
)

PROBE = "/sys/bus/pci/drivers_probe"


def test_a_bind_needs_an_override_because_vfio_pci_knows_no_ids(kernel: Kernel, function: str) -> None:
    assert bind(kernel.host, function) == errno.ENODEV
    assert driver_of(kernel.host, function) is None


def test_with_the_override_the_driver_takes_the_function(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    assert driver_of(kernel.host, function) == VFIO
    assert function in kernel.host.names(f"{DRIVERS}/{VFIO}")


def test_a_line_end_after_the_address_does_not_matter(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    assert attempt(kernel.host, f"{DRIVERS}/{VFIO}/unbind", f"{function}\n") == 0
    assert driver_of(kernel.host, function) is None


def test_an_address_in_upper_case_is_no_address(kernel: Kernel, function: str) -> None:
    if function == function.upper():
        pytest.skip("no function here has a letter in its address")
    set_override(kernel.host, function, VFIO)
    assert bind(kernel.host, function.upper()) == errno.ENODEV


def test_a_second_bind_is_refused_as_busy(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    assert bind(kernel.host, function) == errno.EBUSY
    assert driver_of(kernel.host, function) == VFIO


def test_the_override_is_looked_at_before_the_driver_that_is_there(kernel: Kernel, function: str) -> None:
    take(kernel.host, function)
    set_override(kernel.host, function, FOREIGN)
    assert driver_of(kernel.host, function) == VFIO
    assert bind(kernel.host, function) == errno.ENODEV
    assert bind(kernel.host, function, FOREIGN) == errno.EBUSY


def test_a_function_of_another_driver_is_busy_until_it_is_unbound(kernel: Kernel, function: str) -> None:
    take(kernel.host, function, FOREIGN)
    set_override(kernel.host, function, VFIO)
    assert bind(kernel.host, function) == errno.EBUSY
    assert unbind(kernel.host, function, FOREIGN) == 0
    assert bind(kernel.host, function) == 0
    assert driver_of(kernel.host, function) == VFIO


def test_unbinding_what_is_not_bound_is_refused(kernel: Kernel, function: str) -> None:
    assert unbind(kernel.host, function) == errno.ENODEV


def test_unbinding_from_a_driver_that_does_not_have_it_is_refused(kernel: Kernel, function: str) -> None:
    take(kernel.host, function, FOREIGN)
    assert unbind(kernel.host, function) == errno.ENODEV
    assert driver_of(kernel.host, function) == FOREIGN


def test_a_probe_reports_success_even_if_no_driver_takes_the_function(kernel: Kernel, function: str) -> None:
    assert attempt(kernel.host, PROBE, function) == 0
    assert driver_of(kernel.host, function) is None


def test_a_probe_gives_the_function_to_the_driver_of_its_override(kernel: Kernel, function: str) -> None:
    set_override(kernel.host, function, VFIO)
    assert attempt(kernel.host, PROBE, function) == 0
    assert driver_of(kernel.host, function) == VFIO


def test_nothing_can_be_done_to_an_address_without_a_function(kernel: Kernel) -> None:
    nobody = "0000:00:1e.7"
    assert bind(kernel.host, nobody) == errno.ENODEV
    assert unbind(kernel.host, nobody) == errno.ENODEV
    assert attempt(kernel.host, PROBE, nobody) == errno.ENODEV
    assert set_override(kernel.host, nobody, VFIO) == errno.ENOENT


def test_a_driver_that_is_not_loaded_has_no_file_to_write_to(kernel: Kernel, function: str) -> None:
    assert bind(kernel.host, function, "no-such-driver") == errno.ENOENT


def test_an_override_that_is_not_set_reads_null(kernel: Kernel, function: str) -> None:
    assert kernel.host.read(f"{DEVICES}/{function}/driver_override") == "(null)"


def test_an_empty_write_changes_nothing_and_a_line_end_clears_the_override(kernel: Kernel, function: str) -> None:
    path = f"{DEVICES}/{function}/driver_override"
    assert set_override(kernel.host, function, VFIO) == 0
    assert attempt(kernel.host, path, "") == 0
    assert override_of(kernel.host, function) == VFIO
    assert attempt(kernel.host, path, "\n") == 0
    assert override_of(kernel.host, function) is None


@pytest.mark.parametrize(
    ("length", "answer"), [(4094, 0), (4095, errno.EINVAL), (4096, errno.EINVAL), (5000, errno.EINVAL)]
)
def test_an_override_must_fit_a_page(kernel: Kernel, function: str, length: int, answer: int) -> None:
    assert attempt(kernel.host, f"{DEVICES}/{function}/driver_override", "x" * length) == answer
    assert len(override_of(kernel.host, function) or "") == (0 if answer else length)


def test_an_override_names_a_driver_that_need_not_be_there(kernel: Kernel, function: str) -> None:
    assert set_override(kernel.host, function, "no-such-driver") == 0
    assert bind(kernel.host, function) == errno.ENODEV


def test_an_attribute_that_cannot_be_written_refuses_root_as_well(kernel: Kernel, function: str) -> None:
    assert attempt(kernel.host, f"{DEVICES}/{function}/vendor", "0x1ae0") == errno.EACCES
    assert attempt(kernel.host, f"{DEVICES}/{function}/no-such-attribute", "1") == errno.ENOENT


def test_a_switch_of_a_module_takes_1_and_reads_y_and_takes_no_other_word(kernel: Kernel) -> None:
    path = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
    before = kernel.host.read(path) or ""
    try:
        assert attempt(kernel.host, path, "1") == 0
        assert kernel.host.read(path) == "Y"
        assert attempt(kernel.host, path, "maybe") == errno.EINVAL
        assert kernel.host.read(path) == "Y"
        assert attempt(kernel.host, path, "0\n") == 0
        assert kernel.host.read(path) == "N"
    finally:
        attempt(kernel.host, path, before)
