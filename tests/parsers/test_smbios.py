"""Memory slots from the SMBIOS table and from dmidecode say the same."""

from hypothesis import given
from hypothesis import strategies as st

from uncork.model.facts.firmware import Dimm
from uncork.parsers import smbios


def slot(size: int, *, extended: int = 0, speed: int = 6400, configured: int = 4800) -> bytes:
    body = bytearray(0x5C)
    body[0:2] = bytes((17, 0x5C))
    body[0x0C:0x0E] = size.to_bytes(2, "little")
    body[0x1C:0x20] = extended.to_bytes(4, "little")
    body[0x10:0x12] = bytes((1, 2))
    body[0x15:0x17] = speed.to_bytes(2, "little")
    body[0x20:0x22] = configured.to_bytes(2, "little")
    return bytes(body) + b"DIMM_A1\0P0 CHANNEL A\0\0"


END = b"\x7f\x04\x7f\x00\0\0"


def test_sizes_of_both_spellings():
    table = slot(16384) + slot(0x7FFF, extended=131072) + slot(0) + END

    assert [dimm.size_bytes for dimm in smbios.dimms_of_table(table)] == [16 << 30, 128 << 30, 0]


def test_a_slot_has_names_and_speeds():
    expected = (Dimm("DIMM_A1", "P0 CHANNEL A", 16 << 30, 6400, 4800),)

    assert smbios.dimms_of_table(slot(16384) + END) == expected


@given(st.binary(max_size=300))
def test_any_bytes_end(table: bytes):
    smbios.dimms_of_table(table)


def test_the_old_words_of_dmidecode():
    text = (
        "Memory Device\n\tSize: 32 GB\n\tLocator: P1-DIMMA1\n\tBank Locator: P0_Node0\n"
        "\tSpeed: 2933 MHz\n\tConfigured Clock Speed: 2666 MHz\n\tType: DDR4\n\n"
        "Handle 0x1\nMemory Device\n\tSize: No Module Installed\n\tLocator: P1-DIMMB1\n"
    )

    assert smbios.dimms_of_text(text) == (
        Dimm("P1-DIMMA1", "P0_Node0", 32 << 30, 2933, 2666, "DDR4"),
        Dimm("P1-DIMMB1", "", 0, None, None),
    )
