"""Devices: a table with a source for each value, what was read from a host, and a given bandwidth.

Peaks are dense: rates with 2:4 sparsity are never used. The table is `data/gpus.json`.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from uncork.errors import BadInput
from uncork.model.bound import Hardware
from uncork.model.unknown import is_unknown

if TYPE_CHECKING:  # all facts come along, which `uncork bound` does not need
    from uncork.model.facts.driver import Gpu


@cache
def table() -> tuple[Hardware, ...]:
    """Every device of the table."""
    raw: list[dict[str, Any]] = msgspec.json.decode(
        files(__package__).joinpath("data/gpus.json").read_bytes()
    )
    return tuple(_entry(row) for row in raw)


def _entry(row: dict[str, Any]) -> Hardware:
    values = ("memory_gb", "bandwidth_gb_s", "peaks_tflops", "link_gb_s")
    return Hardware(
        id=row["id"],
        name=row["name"],
        kind="gpu",
        bandwidth_gb_s=row["bandwidth_gb_s"]["value"],
        bandwidth_source=row["bandwidth_gb_s"]["source"],
        memory_bytes=round(row["memory_gb"]["value"] * 1e9),
        peaks_tflops=row["peaks_tflops"]["value"],
        link_gb_s=row["link_gb_s"]["value"],
        link=row["link"],
        in_switch_reduction=row["in_switch_reduction"],
        sources=tuple(f"{value}: {row[value]['source']}" for value in values),
        notes=row["notes"],
        bus_bits=row.get("bus_bits"),
    )


@cache
def _patterns() -> tuple[tuple[str, str], ...]:
    raw: list[dict[str, Any]] = msgspec.json.decode(
        files(__package__).joinpath("data/gpus.json").read_bytes()
    )
    pairs = [(pattern, row["id"]) for row in raw for pattern in row["patterns"]]
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "", name.lower())


def find(name: str) -> Hardware | None:
    """The table's entry for an id or for a name as NVML prints it; None where it has none.

    The longest pattern wins, on word borders: an A100 is not an A10, and a GB200 not a B200.
    """
    for device in table():
        if _plain(name) in {_plain(device.id), _plain(device.name)}:
            return device
    for pattern, id in _patterns():
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(pattern)}(?![A-Za-z0-9])", name, re.IGNORECASE):
            return next(device for device in table() if device.id == id)
    return None


def by_name(name: str) -> Hardware:
    """As `find`. Raises BadInput with the nearest names where there is none or more than one."""
    device = find(name)
    if device:
        return device
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]
    scored = sorted(table(), key=lambda d: -sum(word in d.id.split("_") for word in words))
    near = [d.id for d in scored if words and all(word in d.id for word in words)]
    if len(near) == 1:
        return by_name(near[0])
    listed = ", ".join(near or [d.id for d in scored[:6]])
    says = (
        f"--gpu: {name!r} could be {listed}"
        if near
        else f"--gpu: {name!r} is not in the table; near: {listed}"
    )
    raise BadInput(says, next="give one of these, or --bandwidth GB/S of one device")


def by_bandwidth(
    gb_s: float, *, memory_bytes: int | None = None, source: str = "given on the command line"
) -> Hardware:
    """A device of which only the memory bandwidth (decimal GB/s) is known. Raises BadInput on a value below 0."""
    if not gb_s > 0:
        raise BadInput(f"--bandwidth: {gb_s:g} GB/s is not a bandwidth")
    return Hardware("given", f"a device with {gb_s:g} GB/s", "gpu", gb_s, source, memory_bytes)


def cpu(gb_s: float, *, name: str = "CPU", memory_bytes: int | None = None, source: str) -> Hardware:
    """A host that decodes on its CPU, by the read bandwidth (decimal GB/s) measured or given. No peaks are known."""
    if not gb_s > 0:
        raise BadInput(f"memory bandwidth: {gb_s:g} GB/s is not a bandwidth")
    return Hardware("cpu", name, "cpu", gb_s, source, memory_bytes)


# FLOPs a clock and SM in BF16 with FP32 accumulation; reproduces the published peaks of the cards named in
# docs/bound.md within 0.3 %.
_RATES = {"geforce": 512, "pro": 1024, "a100": 2048, "hopper": 4096}


def from_readings(
    name: str,
    *,
    memory_clock_mhz: float | None = None,
    bus_width_bits: int | None = None,
    memory_bytes: int | None = None,
    sm_count: int | None = None,
    max_sm_clock_mhz: float | None = None,
    compute_capability: tuple[int, int] | None = None,
    copy_gb_s: float | None = None,
) -> Hardware:
    """A device from what this host says about it, filled from the table where the name is known.

    NVML's maximum memory clock × 2 × bus width / 8 goes before the table, since one name can have two memory
    speeds. `copy_gb_s` is a measured device copy, read plus written bytes a second. Raises BadInput where
    neither the readings nor the table give a bandwidth.
    """
    known = find(name)
    bus_width_bits = bus_width_bits or (known.bus_bits if known else None)
    if memory_clock_mhz and bus_width_bits:
        gb_s = memory_clock_mhz * 2 * bus_width_bits / 8 / 1000
        source = f"read on this host: {memory_clock_mhz:g} MHz x 2 x {bus_width_bits} bit / 8"
    elif known:
        gb_s, source = known.bandwidth_gb_s, f"table: {known.bandwidth_source}"
    else:
        raise BadInput(
            f"{name!r} is not in the table and its memory clock could not be read", next="give --bandwidth"
        )
    peaks = (
        known.peaks_tflops if known else _fallback_peaks(name, sm_count, max_sm_clock_mhz, compute_capability)
    )
    base = known or by_bandwidth(gb_s)
    device = msgspec.structs.replace(
        base,
        name=name,
        bandwidth_gb_s=gb_s,
        bandwidth_source=source,
        memory_bytes=memory_bytes or base.memory_bytes,
        peaks_tflops=peaks,
    )
    return with_copy(device, copy_gb_s) if copy_gb_s else device


def with_copy(device: Hardware, copy_gb_s: float) -> Hardware:
    """The device with the share of its bandwidth that a copy reached on this host (bytes read plus written).

    Raises BadInput on a value that is not a bandwidth; one above the peak counts as the peak.
    """
    if not copy_gb_s > 0:
        raise BadInput(f"--copy: {copy_gb_s:g} GB/s is not a bandwidth")
    return msgspec.structs.replace(device, copy_share=min(1.0, copy_gb_s / device.bandwidth_gb_s))


def from_gpu(gpu: "Gpu", *, copy_gb_s: float | None = None) -> Hardware:
    """A device from the driver's facts about it: memory clock, memory size, clocks, power cap.

    NVML tells no bus width, so that comes from the table by name. Raises BadInput where the name is not known
    and neither is the bus.
    """
    if is_unknown(gpu.name):
        raise BadInput(
            f"GPU {gpu.index}: its name could not be read ({gpu.name.reason})",
            next="give --gpu or --bandwidth",
        )
    capability = None if is_unknown(gpu.compute_capability) else gpu.compute_capability.split(".")
    device = from_readings(
        gpu.name,
        memory_clock_mhz=None if is_unknown(gpu.max_memory_clock_mhz) else gpu.max_memory_clock_mhz,
        memory_bytes=None if is_unknown(gpu.memory_total_bytes) else gpu.memory_total_bytes,
        max_sm_clock_mhz=None if is_unknown(gpu.max_sm_clock_mhz) else gpu.max_sm_clock_mhz,
        compute_capability=(int(capability[0]), int(capability[1])) if capability else None,
        copy_gb_s=copy_gb_s,
    )
    return msgspec.structs.replace(device, read=tuple(_held_back(gpu)))


def _held_back(gpu: "Gpu") -> Iterator[str]:
    """What on this host keeps the card below what its limits allow."""
    if not is_unknown(gpu.power_enforced_mw) and not is_unknown(gpu.power_default_mw):
        cap, default = gpu.power_enforced_mw / 1e3, gpu.power_default_mw / 1e3
        if cap < default:
            yield f"power capped at {cap:g} W of {default:g}: clocks may not hold, the bound stays at full clocks"
    if not is_unknown(gpu.app_memory_clock_mhz) and not is_unknown(gpu.max_memory_clock_mhz):
        clock, most = gpu.app_memory_clock_mhz, gpu.max_memory_clock_mhz
        if 0 < clock < most:
            yield f"memory clock set to {clock} MHz of {most}: it loses that share of the bandwidth"


def _fallback_peaks(
    name: str, sm_count: int | None, clock_mhz: float | None, capability: tuple[int, int] | None
) -> dict[str, float]:
    if not (sm_count and clock_mhz and capability):
        return {}
    generation = {(8, 0): "a100", (9, 0): "hopper"}.get(capability, "geforce" if "GeForce" in name else "pro")
    if capability < (8, 0) or capability[0] == 10:
        return {}  # the rule was never checked against these
    bf16 = sm_count * clock_mhz * 1e6 * _RATES[generation] / 1e12
    peaks = {"bf16": bf16, "fp16": bf16 * (2 if generation == "geforce" else 1)}
    if capability >= (8, 9):
        peaks["fp8"] = 2 * peaks["fp16"]
    if capability >= (10, 0):
        peaks["fp4"] = 4 * peaks["fp16"]
    return peaks


def peak_tflops(hardware: Hardware, bits: int) -> float | None:
    """The fastest matrix rate that weights of that width could use: a narrower weight may run at a wider rate.

    The strict choice: 4-bit weights count as FP4, else FP8 or INT8, though an engine may unpack them to BF16.
    """
    names = ["bf16", "fp16", "fp16_acc16"]
    if bits <= 8:
        names += ["fp8", "fp8_acc16", "int8"]
    if bits <= 4:
        names.append("fp4")
    return max((hardware.peaks_tflops[name] for name in names if name in hardware.peaks_tflops), default=None)
