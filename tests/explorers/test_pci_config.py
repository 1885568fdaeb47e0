"""Configuration space → values, on bytes built register by register and on any bytes at all."""

from hypothesis import example, given
from hypothesis import strategies as st
from tests.explorers.pci_bytes import config

from uncork.explorers import pci_config
from uncork.model.facts.pcie import Rebar
from uncork.model.unknown import Unknown, is_unknown

MIB, GIB = 1 << 20, 1 << 30


def test_a_gpu_reads_as_it_was_built():
    built = config(
        read_request=4096, payload=512, payload_supported=512, speed=2.5, width=8, extended_tag=False
    )

    found = pci_config.parse(built)

    assert (found.port, found.read_request_bytes, found.payload_bytes) == ("endpoint", 4096, 512)
    assert (found.link_speed_gt_s, found.max_link_speed_gt_s) == (2.5, 32.0)
    assert (found.link_width, found.max_link_width) == (8, 16)
    assert (found.relaxed_ordering, found.extended_tag, found.extended_tag_supported) == (True, False, True)
    assert found.acs_control is None


def test_redirect_bits_of_a_switch_port_are_read():
    found = pci_config.parse(config(port="downstream", acs=0x1D))

    assert found.acs_control == 0x1D
    assert found.acs_control & pci_config.ACS_REDIRECT == 0x0C


def test_the_second_and_third_extended_capability_are_found():
    found = pci_config.parse(config(acs=0, ats=True, dpc=1, rebar=(256 * MIB, 256 * MIB, 32 * GIB)))

    assert (found.ats, found.dpc_triggered) == (True, True)
    assert found.rebar == (Rebar(1, 256 * MIB, (256 * MIB, 32 * GIB)),)


def test_masked_errors_are_left_out():
    data = bytearray(config(aer=1 << 14 | 1 << 20))
    data[0x108:0x10C] = (1 << 20).to_bytes(4, "little")

    assert pci_config.parse(bytes(data)).aer_uncorrectable == 1 << 14


def test_64_bytes_are_no_answer():
    found = pci_config.parse(config()[:64])

    assert is_unknown(found)
    assert "root" in found.reason


def test_all_ones_mean_off_the_bus():
    assert pci_config.off_the_bus(b"\xff" * 256)
    assert is_unknown(pci_config.parse(b"\xff" * 256))


def test_a_capability_list_that_goes_round_ends():
    data = bytearray(config())
    data[0x61] = 0x50

    assert set(pci_config.capabilities(bytes(data))) == {0x01, 0x10}


def test_an_extended_list_that_goes_round_ends():
    data = bytearray(config(acs=0, ats=False))
    data[0x11B] = 0x10  # the ATS block points back to 0x100

    assert pci_config.ACS in pci_config.extended(bytes(data))


@given(st.binary(min_size=0, max_size=4096))
@example(b"")
@example(config()[:256])
def test_any_bytes_give_values_or_a_reason(data):
    found = pci_config.parse(data)

    assert isinstance(found, Unknown) or found.read_request_bytes >= 128
