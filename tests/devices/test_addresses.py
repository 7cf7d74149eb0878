"""Which texts are PCI addresses?"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpuagent.devices.pci import Address, parse_address, parse_ids
from tpuagent.errors import UsageError

addresses = st.builds(
    Address,
    domain=st.integers(0, 0xFFFFFFFF),
    bus=st.integers(0, 0xFF),
    slot=st.integers(0, 0x1F),
    function=st.integers(0, 7),
)
# As the kernel prints them: lower case, and only as many digits of the domain as it needs.
CANONICAL = re.compile(r"([0-9a-f]{4}|[1-9a-f][0-9a-f]{4,7}):[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")


@given(addresses)
def test_every_address_reads_back_from_how_it_prints(address: Address) -> None:
    assert CANONICAL.fullmatch(str(address))
    assert parse_address(str(address)) == address
    assert parse_address(str(address).upper()) == address


@given(addresses)
def test_without_a_domain_it_is_domain_zero(address: Address) -> None:
    short = str(address).partition(":")[2]
    assert parse_address(short) == Address(0, address.bus, address.slot, address.function)


@given(st.one_of(st.text(), st.text("0123456789abcdefABCDEF:./ \n", max_size=16), st.from_regex(CANONICAL)))
def test_whatever_is_taken_is_printed_as_the_kernel_names_it_and_the_rest_is_refused(text: str) -> None:
    try:
        printed = str(parse_address(text))
    except UsageError:
        return
    assert CANONICAL.fullmatch(printed)
    assert text.lower().lstrip("0").endswith(printed.removeprefix("0000:").lstrip("0"))


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("0000:00:0A.0", "0000:00:0a.0"),
        ("00:04.0", "0000:00:04.0"),
        ("10001:80:05.0", "10001:80:05.0"),
        ("00010001:80:05.0", "10001:80:05.0"),
        ("FFFFFFFF:FF:1F.7", "ffffffff:ff:1f.7"),
    ],
)
def test_short_wide_and_upper_case_addresses_are_taken(text: str, printed: str) -> None:
    assert str(parse_address(text)) == printed


@pytest.mark.parametrize(
    "text",
    [
        "", "0000:00:04", "0000:00:04.00", "0000:00:04.8", "0000:00:20.0", "000:00:04.0", "123456789:00:04.0",
        "../../etc", "0000:00:04.0/../..", "0000:00:04.0\n", "\n0000:00:04.0", " 00:04.0", "00:04.0 ", "0000:00:04.0\0",
        "\u0660\u0660:04.0", "00:04.\u0660", "0x0:00:04.0", "00-04.0", "0000.00:04.0", "all",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="as a PCI address"):
        parse_address(text)


@pytest.mark.parametrize(
    "text", ["", "1ae0", "1ae0:006f", "1ae0:006f:1ae0:00d1\n", "0x1ae0:006f:1ae0:00d1", "1ae0:6f:1ae0:d1"]
)
def test_ids_are_four_times_four_digits(text: str) -> None:
    with pytest.raises(ValueError, match="four ids"):
        parse_ids(text)
    assert str(parse_ids("1AE0:006F:1ae0:00d1")) == "1ae0:006f:1ae0:00d1"
