"""What lies between two GPUs, from sysfs: shared switch, root port, socket; the slowest link; the order of devices."""

import re
from collections.abc import Sequence

import msgspec

from uncork.gate.fabric import Link, Path
from uncork.host import Host
from uncork.model.unknown import Unknown, is_unknown

# Raw rate of one lane in GB/s after line coding (PCI Express Base Specification, 8b/10b until Gen2, 128b/130b after).
LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.9846, 4: 1.9692, 5: 3.9385, 6: 7.563}
_GT_S = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
DEVICES = "/sys/bus/pci/devices"
_BDF = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class Place(msgspec.Struct, frozen=True):
    """Where a GPU sits: bridges above it, the root port first; its root, socket and link."""

    bdf: str
    root: str
    bridges: tuple[str, ...]
    node: int
    generation: int
    width: int
    payload_bytes: int


def generation(text: str | Unknown) -> int | Unknown:
    """The PCIe generation of `32.0 GT/s PCIe`, as sysfs writes a link speed."""
    if is_unknown(text):
        return text
    match = re.match(r"([\d.]+) GT/s", text.strip())
    return _GT_S.get(float(match.group(1)), 0) if match else Unknown(f"link speed reads {text.strip()!r}")


def _number(text: str | Unknown) -> int | Unknown:
    if is_unknown(text):
        return text
    try:
        return int(text.strip(), 0)
    except ValueError:
        return Unknown(f"reads {text.strip()!r}")


def place(host: Host, bus_id: str) -> Place | Unknown:
    """Where a GPU sits; Unknown where sysfs does not know the device (a container without it, a fake driver)."""
    bdf = bus_id.lower()[-12:]
    link = host.link(f"{DEVICES}/{bdf}")
    if is_unknown(link):
        return link
    parts = link.split("/")
    root = next((part for part in parts if part.startswith("pci")), "")
    bridges = tuple(part for part in parts if _BDF.fullmatch(part) and part != bdf)
    ends = [f"{DEVICES}/{bdf}", *(f"{DEVICES}/{bridge}" for bridge in bridges)]
    speeds = [
        value
        for end in ends
        if not is_unknown(value := generation(host.read(f"{end}/max_link_speed"))) and value
    ]
    widths = [
        value
        for end in ends
        if not is_unknown(value := _number(host.read(f"{end}/max_link_width"))) and value
    ]
    node = _number(host.read(f"{DEVICES}/{bdf}/numa_node"))
    return Place(
        bdf,
        root,
        bridges,
        -1 if is_unknown(node) else node,
        min(speeds, default=0),
        min(widths, default=0),
        0,
    )


def order(places: Sequence[Place | Unknown]) -> list[int]:
    """CUDA ordinals in topology order: by socket, root, then the switches above; unknown ones as they are."""

    def key(ordinal: int) -> tuple[object, ...]:
        one = places[ordinal]
        return (0, one.node, one.root, one.bridges, one.bdf) if not is_unknown(one) else (1, ordinal)

    if any(is_unknown(one) for one in places):
        return list(range(len(places)))
    return sorted(range(len(places)), key=key)


def path(one: Place | Unknown, other: Place | Unknown, labels: tuple[str, str], platform: str) -> Path:
    """What lies between two GPUs, sender first."""
    tx, rx = f"{labels[0]} tx", f"{labels[1]} rx"
    if is_unknown(one) or is_unknown(other):
        return Path("unknown", (tx, rx))
    slowest = min(one, other, key=lambda end: LANE_GB_S.get(end.generation, 0.0) * end.width)
    raw = LANE_GB_S.get(slowest.generation, 0.0) * slowest.width or None
    kind, middle = _between(one, other)
    return Path(kind, (tx, *middle, rx), raw, slowest.generation, slowest.payload_bytes, platform)


def _between(one: Place, other: Place) -> tuple[str, list[str]]:
    shared = [bridge for bridge, far in zip(one.bridges, other.bridges, strict=False) if bridge == far]
    # A root port alone is no switch: two functions below one root port without a switch are one slot.
    if len(shared) > 1:
        return "same-switch", [f"switch {shared[-1]} crossbar"]
    up = [f"switch {one.bridges[1]} up"] if len(one.bridges) > 1 else []
    down = [f"switch {other.bridges[1]} down"] if len(other.bridges) > 1 else []
    if shared or one.root == other.root:
        return "same-root", [*up, f"root {one.root}", *down]
    if one.node == other.node:
        return "same-socket", [*up, f"root {one.root}", f"root {other.root}", *down]
    link = f"socket link {one.node}→{other.node}"
    return "cross-socket", [*up, f"root {one.root}", link, f"root {other.root}", *down]


def platform(host: Host) -> str:
    """turin, genoa, intel or empty: what the cross-socket floor depends on."""
    text = host.read("/proc/cpuinfo")
    if is_unknown(text):
        return ""
    if "GenuineIntel" in text:
        return "intel"
    # EPYC 9005 has model 0x00-0x1f of family 0x1a, EPYC 9004 model 0x10-0x1f and 0xa0-0xaf of family 0x19.
    family = re.search(r"^cpu family\s*:\s*(\d+)", text, re.M)
    return {"26": "turin", "25": "genoa"}.get(family.group(1), "") if family else ""


def link(host: Host, label: str, bus_id: str, sample: int) -> Link:
    """A GPU's link as it is now, against what both of its ends can do."""
    bdf = bus_id.lower()[-12:]
    here = place(host, bus_id)
    if is_unknown(here):
        return Link(f"{label} link", here, here, here, here)
    port = here.bridges[-1] if here.bridges else bdf
    ends = [f"{DEVICES}/{bdf}", f"{DEVICES}/{port}"]
    return Link(
        f"{label} link",
        generation(host.read(f"{ends[0]}/current_link_speed", sample=sample)),
        _number(host.read(f"{ends[0]}/current_link_width", sample=sample)),
        _least([generation(host.read(f"{end}/max_link_speed")) for end in ends]),
        _least([_number(host.read(f"{end}/max_link_width")) for end in ends]),
    )


def _least(values: list[int | Unknown]) -> int | Unknown:
    known: list[int] = []
    for value in values:
        if is_unknown(value):
            return value
        known.append(value)
    return min(known)
