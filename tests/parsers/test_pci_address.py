"""However a tool writes an address, it is compared as sysfs writes it."""

import pytest

from uncork.parsers import pci_address


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("00000000:2E:00.0", "0000:2e:00.0"),
        ("2E:00.1", "0000:2e:00.1"),
        ("2e:00", "0000:2e:00.0"),
        (" 0001:2e:00.0\n", "0001:2e:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),  # a domain of Intel's VMD, beyond 16 bits
        ("N/A", "n/a"),
        ("", ""),
    ],
)
def test_an_address_has_one_form(written, address):
    assert pci_address.full(written) == address
    assert pci_address.full(address) == address
