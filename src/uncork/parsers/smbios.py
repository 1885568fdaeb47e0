"""Memory slots: SMBIOS type 17 as the kernel exposes it, and as dmidecode prints it."""

import re

from uncork.model.facts.firmware import Dimm

_UNITS = {"kB": 1 << 10, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def dimms_of_table(table: bytes) -> tuple[Dimm, ...]:
    """The slots of /sys/firmware/dmi/tables/DMI. Offsets: DMTF DSP0134, 7.18 Memory Device (Type 17)."""
    found = []
    at = 0
    while at + 4 <= len(table):
        kind, length = table[at], table[at + 1]
        end = table.find(b"\x00\x00", at + length)
        if length < 4 or end < 0:
            break
        body = table[at : at + length]
        if kind == 17 and length >= 0x15:
            found.append(_dimm(body, table[at + length : end].split(b"\x00")))
        if kind == 127:
            break
        at = end + 2
    return tuple(found)


def _word(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 2], "little") if len(body) >= at + 2 else 0


def _double(body: bytes, at: int) -> int:
    return int.from_bytes(body[at : at + 4], "little") if len(body) >= at + 4 else 0


def _dimm(body: bytes, strings: list[bytes]) -> Dimm:
    def text(at: int) -> str:
        number = body[at] if len(body) > at else 0
        return strings[number - 1].decode("latin-1").strip() if 0 < number <= len(strings) else ""

    size = _word(body, 0x0C)
    if size == 0x7FFF:
        bytes_ = (_double(body, 0x1C) & 0x7FFFFFFF) << 20
    elif size in (0, 0xFFFF):
        bytes_ = 0
    else:
        bytes_ = (size & 0x7FFF) << (10 if size & 0x8000 else 20)
    return Dimm(text(0x10), text(0x11), bytes_, _speed(body, 0x15, 0x54), _speed(body, 0x20, 0x58))


def _speed(body: bytes, at: int, extended: int) -> int | None:
    speed = _word(body, at)
    return _double(body, extended) if speed == 0xFFFF else speed or None


def dimms_of_text(text: str) -> tuple[Dimm, ...]:
    """The slots of `dmidecode`, whole or `-t memory`; old versions write MHz and `Configured Clock Speed`."""
    found = []
    for block in re.split(r"^Memory Device\s*$", text, flags=re.M)[1:]:
        block = re.split(r"^Handle 0x", block, maxsplit=1, flags=re.M)[0]
        values: dict[str, str] = dict(re.findall(r"^\s+([A-Z][\w ]+): *(.*)$", block, re.M))
        size = re.match(r"(\d+) ([kKMGT]B)", values.get("Size", ""))
        found.append(
            Dimm(
                values.get("Locator", "").strip(),
                values.get("Bank Locator", "").strip(),
                int(size[1]) * _UNITS[size[2]] if size else 0,
                _said(values.get("Speed", "")),
                _said(values.get("Configured Memory Speed", values.get("Configured Clock Speed", ""))),
                values.get("Type", "").strip(),
            )
        )
    return tuple(found)


def _said(text: str) -> int | None:
    match = re.match(r"(\d{1,6}) (MT/s|MHz)", text)
    return int(match[1]) if match else None
