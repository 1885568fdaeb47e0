"""PCI configuration space → values. Pure functions on bytes; offsets are found by walking the lists.

Registers and bits: PCI Express Base Specification 6.0, chapter 7; names as in pciutils' header.h.
"""

from collections.abc import Callable
from typing import Any

from uncork.model.facts.pcie import Config, Rebar
from uncork.model.unknown import Unknown

STANDARD_BYTES, FULL_BYTES = 256, 4096
_PORTS = {
    0: "endpoint",
    1: "legacy",
    4: "root",
    5: "upstream",
    6: "downstream",
    7: "bridge",
    8: "bridge",
    9: "integrated",
    10: "integrated",
}
_SPEEDS_GT_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0, 7: 128.0}
_ASPM = ("off", "L0s", "L1", "L0s+L1")
AER, ACS, ATS, SRIOV, REBAR, DPC = 0x01, 0x0D, 0x0F, 0x10, 0x15, 0x1D
ACS_REDIRECT = 0x2C  # request redirect 0x04, completion redirect 0x08, egress control 0x20


def word(data: bytes, at: int) -> int:
    """Two bytes, little endian; zero beyond what was read."""
    return int.from_bytes(data[at : at + 2], "little")


def dword(data: bytes, at: int) -> int:
    """Four bytes, little endian."""
    return int.from_bytes(data[at : at + 4], "little")


def off_the_bus(data: bytes) -> bool:
    """Whether every byte reads as ones: nobody answers at that address."""
    return len(data) >= 4 and not data.strip(b"\xff")


def capabilities(data: bytes) -> dict[int, int]:
    """Capability id → offset, of the list below 256 bytes; the first of each id."""
    found: dict[int, int] = {}
    if not word(data, 0x06) & 0x10:
        return found
    at, seen = data[0x34] & 0xFC, set[int]()
    while 0x40 <= at < STANDARD_BYTES - 1 and at not in seen and at + 1 < len(data):
        seen.add(at)
        found.setdefault(data[at], at)
        at = data[at + 1] & 0xFC
    return found


def extended(data: bytes) -> dict[int, int]:
    """Extended capability id → offset, of the list from 0x100; the first of each id."""
    found: dict[int, int] = {}
    at, seen = 0x100, set[int]()
    while 0x100 <= at <= len(data) - 4 and at not in seen:
        seen.add(at)
        header = dword(data, at)
        if header in (0, 0xFFFFFFFF):
            break
        found.setdefault(header & 0xFFFF, at)
        at = header >> 20 & 0xFFC
    return found


def parse(data: bytes) -> Config | Unknown:
    """The values of one function; Unknown where privilege or the device kept them back."""
    if off_the_bus(data):
        return Unknown("configuration space reads as all ones: the device is off the bus")
    if len(data) <= 64:
        return Unknown("only 64 bytes of configuration space were given: the rest needs root on the host")
    express = capabilities(data).get(0x10)
    if express is None:
        return Unknown("the function has no PCI Express capability")
    return Config(**_device(data, express), **_link(data, express), **_extended(data))


def _device(data: bytes, express: int) -> dict[str, Any]:
    """Device capabilities, control and status of the PCI Express capability at `express`."""
    cap, control = dword(data, express + 0x04), word(data, express + 0x08)
    cap2, control2 = dword(data, express + 0x24), word(data, express + 0x28)
    return {
        "port": _PORTS.get(word(data, express + 0x02) >> 4 & 0xF, "other"),
        "payload_bytes": 128 << (control >> 5 & 7),
        "payload_supported_bytes": 128 << (cap & 7),
        "read_request_bytes": 128 << (control >> 12 & 7),
        "extended_tag": bool(control & 0x100),
        "extended_tag_supported": bool(cap & 0x20),
        "relaxed_ordering": bool(control & 0x10),
        "no_snoop": bool(control & 0x800),
        "transactions_pending": bool(word(data, express + 0x0A) & 0x20),
        "completion_timeout_code": control2 & 0xF,
        "completion_timeout_off": bool(control2 & 0x10),
        "atomic_routing": bool(cap2 & 0x40),
        "atomic_completer_64": bool(cap2 & 0x100),
        "atomic_requester": bool(control2 & 0x40),
        "atomic_egress_blocked": bool(control2 & 0x80),
        "ten_bit_tag_completer": bool(cap2 & 0x10000),
        "ten_bit_tag_requester_supported": bool(cap2 & 0x20000),
        "ten_bit_tag": bool(control2 & 0x1000),
    }


def _link(data: bytes, express: int) -> dict[str, Any]:
    """The link of the function, None throughout where it is part of the root complex; power fault of a slot."""
    flags = word(data, express + 0x02)
    port = _PORTS.get(flags >> 4 & 0xF, "other")
    cap, status = dword(data, express + 0x0C), word(data, express + 0x12)
    link = port != "integrated"
    slotted = port in ("root", "downstream") and bool(flags & 0x100)
    return {
        "link_speed_gt_s": _SPEEDS_GT_S.get(status & 0xF) if link else None,
        "link_width": status >> 4 & 0x3F if link else None,
        "max_link_speed_gt_s": _SPEEDS_GT_S.get(cap & 0xF) if link else None,
        "max_link_width": cap >> 4 & 0x3F if link else None,
        "target_speed_gt_s": _SPEEDS_GT_S.get(word(data, express + 0x30) & 0xF) if link else None,
        "aspm": _ASPM[word(data, express + 0x10) & 3] if link else None,
        "slot_power_fault": bool(word(data, express + 0x1A) & 2) if slotted else None,
    }


def _extended(data: bytes) -> dict[str, Any]:
    """What the extended capabilities say; None where the function has no such one."""
    more = extended(data)

    def has(id: int, read: Callable[[int], Any]) -> Any:
        return read(more[id]) if id in more else None

    return {
        "acs_supported": has(ACS, lambda at: word(data, at + 4)),
        "acs_control": has(ACS, lambda at: word(data, at + 6)),
        "ats": has(ATS, lambda at: bool(word(data, at + 6) & 0x8000)),
        # Trigger status of DPC is bit 0 of its status word.
        "dpc_triggered": has(DPC, lambda at: bool(word(data, at + 8) & 1)),
        "aer_uncorrectable": has(AER, lambda at: dword(data, at + 4) & ~dword(data, at + 8)),
        "aer_correctable": has(AER, lambda at: dword(data, at + 0x10)),
        "sriov_vfs": has(SRIOV, lambda at: word(data, at + 0x10)),
        "rebar": _rebar(data, more[REBAR]) if REBAR in more else (),
    }


def _rebar(data: bytes, at: int) -> tuple[Rebar, ...]:
    """Entries of the Resizable BAR capability: sizes are 1 MiB shifted by the bit's number less four."""
    entries = []
    for entry in range(min(6, word(data, at + 8) >> 5 & 7)):
        cap, control = dword(data, at + 4 + 8 * entry), dword(data, at + 8 + 8 * entry)
        sizes = tuple(1 << 20 + bit - 4 for bit in range(4, 32) if cap >> bit & 1)
        entries.append(Rebar(control & 7, 1 << 20 + (control >> 8 & 0x3F), sizes))
    return tuple(entries)
