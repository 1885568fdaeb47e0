"""How long collectives take: floors from the link, curves measured on this host or taken from another."""

import itertools
import math
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from uncork.errors import BadInput
from uncork.model.bound import Curve, Hardware

# One flag written by a peer and seen: 1.06-1.07 us over PCIe 5 (rtx6kpro), about 1 us over NVLink (LIMINAL,
# arXiv 2507.14397). An all-reduce needs at least one such hop.
FLAG_US = {"pcie": 1.07, "nvlink": 1.0}

# Whose published table stands in where this host has none, by the kind of link.
_STAND_INS = (
    ("NVLink 5", "b200_sxm"),
    ("NVLink 4", "h200_sxm"),
    ("NVLink 3", "a100_sxm"),
    ("PCIe 5", "rtx_pro_6000_server"),
    ("PCIe 6", "rtx_pro_6000_server"),
    ("PCIe 4", "l40s"),
)


@cache
def _published() -> dict[str, Any]:
    value: dict[str, Any] = msgspec.json.decode(
        files(__package__).joinpath("data/allreduce.json").read_bytes()
    )
    return value


def foreign_curve(hardware: Hardware, ranks: int) -> Curve | None:
    """The published table of a host with the same kind of link: the faster of NCCL and a custom kernel.

    Where the table has no such number of ranks, the next larger one stands in. None for one rank and for a
    link that no table covers.
    """
    if ranks < 2 or hardware.kind != "gpu":
        return None
    host = next((host for link, host in _STAND_INS if hardware.link.startswith(link)), None)
    if host is None:
        return None
    kinds = _published()["hosts"][host]
    sizes = sorted(int(n) for n in kinds["nccl"])
    stand_in = next((n for n in sizes if n >= ranks), sizes[-1])
    nccl, custom = (dict(map(tuple, kinds[kind][str(stand_in)])) for kind in ("nccl", "custom_graph"))
    points = tuple((size, min(us, custom.get(size, us))) for size, us in nccl.items())
    return Curve(points, f"aiconfigurator's table for {host}, {stand_in} GPUs", ranks, foreign=True)


def measured_curve(points: Iterable[tuple[int, float]], ranks: int, source: str) -> Curve:
    """A curve measured on this host: (bytes, microseconds). Raises BadInput where it has no usable point."""
    clean = sorted({int(size): float(us) for size, us in points}.items())
    if not clean or any(size <= 0 or not us > 0 or not math.isfinite(us) for size, us in clean):
        raise BadInput(f"{source}: no usable points of (bytes, microseconds)")
    return Curve(tuple(clean), source, ranks, foreign=False)


def read_curve(path: Path, ranks: int) -> Curve:
    """A curve file: JSON (an object of bytes to us, or a list of pairs), two columns, or nccl-tests output.

    Raises BadInput naming the line that cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--allreduce-us: {path} cannot be read: {error}") from None
    if text.lstrip().startswith(("{", "[")):
        try:
            value = msgspec.json.decode(text)
            value = value.get("allreduce_us", value) if isinstance(value, dict) else value
            pairs = list(value.items()) if isinstance(value, dict) else [tuple(pair) for pair in value]
            return measured_curve([(int(size), float(us)) for size, us in pairs], ranks, f"file {path.name}")
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise BadInput(f"--allreduce-us: {path.name}: expected bytes to microseconds: {error}") from None
    points = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.replace(",", " ").split()
        if not fields or fields[0].startswith("#") or not fields[0].isdigit():
            continue
        try:
            # nccl-tests prints size, count, type, redop, root, then the out-of-place time.
            points.append((int(fields[0]), float(fields[5] if len(fields) > 5 else fields[1])))
        except (IndexError, ValueError):
            raise BadInput(
                f"--allreduce-us: {path.name} line {number}: expected bytes and microseconds"
            ) from None
    return measured_curve(points, ranks, f"file {path.name}")


def curve_us(curve: Curve, size: float) -> float:
    """The time of a message of `size` bytes: log-log between points, flat below, bandwidth-bound above.

    One latency and one bandwidth cannot follow the protocol switches: such a line is off by 3x at 64 KB-1 MB.
    """
    points = curve.points
    if size <= points[0][0]:
        return points[0][1]
    for (low, low_us), (high, high_us) in itertools.pairwise(points):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return math.exp(math.log(low_us) + share * math.log(high_us / low_us))
    return points[-1][1] * size / points[-1][0]


def flag_us(hardware: Hardware) -> float:
    """The least time in which one device can tell another something, in microseconds."""
    return FLAG_US["pcie" if hardware.link.startswith("PCIe") or not hardware.link else "nvlink"]


def all_reduce_floor_us(hardware: Hardware, ranks: int, size: float) -> float:
    """The least an all-reduce of `size` bytes can take: a flag, or the bytes that must cross each link.

    2(n-1)/n of the message in each direction; just the message where the switch itself adds (NVLink SHARP).
    """
    if ranks < 2:
        return 0.0
    floor = flag_us(hardware)
    if hardware.link_gb_s:
        crossing = size if hardware.in_switch_reduction and ranks > 2 else 2 * (ranks - 1) / ranks * size
        floor = max(floor, crossing / (hardware.link_gb_s * 1e3))
    return floor


def send_floor_us(hardware: Hardware, size: float) -> float:
    """The least in which one device can hand `size` bytes to another."""
    return max(flag_us(hardware), size / (hardware.link_gb_s * 1e3) if hardware.link_gb_s else 0.0)
