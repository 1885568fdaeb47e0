"""Configuration space built register by register, for tests: what a GPU, a switch port or a root port reads as."""

PORTS = {"endpoint": 0, "legacy": 1, "root": 4, "upstream": 5, "downstream": 6}
SPEEDS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}


def config(
    *,
    ids: tuple[int, int] = (0x10DE, 0x2BB5),
    port: str = "endpoint",
    payload: int = 256,
    payload_supported: int = 256,
    read_request: int = 512,
    relaxed_ordering: bool = True,
    extended_tag: bool = True,
    speed: float = 32.0,
    max_speed: float = 32.0,
    target_speed: float | None = None,
    width: int = 16,
    max_width: int = 16,
    aspm: int = 0,
    acs: int | None = None,
    ats: bool | None = None,
    aer: int | None = 0,
    dpc: int | None = None,
    rebar: tuple[int, ...] = (),
    slot_status: int = 0,
    size: int = 512,
) -> bytes:
    """A type 0 or 1 header, the PCI Express capability at 0x60 and extended capabilities from 0x100."""
    data = bytearray(size)

    def put(at: int, value: int, length: int = 2) -> None:
        data[at : at + length] = value.to_bytes(length, "little")

    put(0x00, ids[0])
    put(0x02, ids[1])
    put(0x06, 0x10)  # a capability list
    data[0x0E] = 0 if port in ("endpoint", "legacy") else 1
    data[0x34] = 0x50
    data[0x50:0x52] = bytes((0x01, 0x60))  # power management, then PCI Express
    data[0x60:0x62] = bytes((0x10, 0x00))
    put(0x62, 2 | PORTS[port] << 4 | (0x100 if port in ("root", "downstream") else 0))
    put(0x64, (payload_supported // 128).bit_length() - 1 | 0x20, 4)
    control = ((payload // 128).bit_length() - 1) << 5 | ((read_request // 128).bit_length() - 1) << 12
    put(0x68, control | (0x10 if relaxed_ordering else 0) | (0x100 if extended_tag else 0))
    put(0x6C, SPEEDS[max_speed] | max_width << 4, 4)
    put(0x70, aspm)
    put(0x72, SPEEDS[speed] | width << 4)
    put(0x7A, slot_status)
    put(0x84, 0x40 | 0x100, 4)  # DevCap2: atomics routed and completed
    put(0x90, SPEEDS[target_speed or max_speed])
    _extended(put, acs, ats, aer, dpc, rebar)
    return bytes(data)


def _extended(put, acs, ats, aer, dpc, rebar) -> None:
    blocks = []
    if aer is not None:
        blocks.append((0x01, 0x18, [(0x04, aer, 4)]))
    if acs is not None:
        blocks.append((0x0D, 0x08, [(0x04, 0x5F, 2), (0x06, acs, 2)]))
    if ats is not None:
        blocks.append((0x0F, 0x08, [(0x06, 0x8000 if ats else 0, 2)]))
    if dpc is not None:
        blocks.append((0x1D, 0x10, [(0x08, dpc, 2)]))
    if rebar:
        now, *offered = rebar
        bits = sum(1 << (size.bit_length() - 21 + 4) for size in offered)
        blocks.append((0x15, 0x10, [(0x04, bits, 4), (0x08, 1 | 1 << 5 | (now.bit_length() - 21) << 8, 4)]))
    at = 0x100
    for number, (id, length, fields) in enumerate(blocks):
        after = at + length if number + 1 < len(blocks) else 0
        put(at, id | 1 << 16 | after << 20, 4)
        for offset, value, bytes_ in fields:
            put(at + offset, value, bytes_)
        at += length
