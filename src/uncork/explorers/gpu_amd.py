"""AMD GPUs from amdgpu's sysfs; the same structs as for NVIDIA."""

import re
from typing import TYPE_CHECKING

from uncork.explorers import reading
from uncork.host import Host
from uncork.model.facts.driver import NOT_READ, Gpu
from uncork.model.unknown import Unknown

if TYPE_CHECKING:
    from uncork.parsers.rocm import Gpu as Printed


def gpus(host: Host, first_index: int) -> tuple[Gpu, ...]:
    """The cards that amdgpu drives."""
    found: list[Gpu] = []
    for path in host.glob("/sys/class/drm/card[0-9]*/device"):
        vendor = host.read(f"{path}/vendor")
        if isinstance(vendor, Unknown) or vendor.strip() != "0x1002":
            continue
        where = host.link(path)
        bdf = Unknown(f"{path} is no link") if isinstance(where, Unknown) else where.rpartition("/")[2]
        if any(not isinstance(gpu.bdf, Unknown) and gpu.bdf == bdf for gpu in found):
            continue
        found.append(_gpu(host, first_index + len(found), path, bdf))
    return tuple(found)


def _gpu(host: Host, index: int, path: str, bdf: str | Unknown) -> Gpu:
    def number(name: str) -> int | Unknown:
        return reading.integer(host, f"{path}/{name}")

    sensors = host.glob(f"{path}/hwmon/hwmon*")
    sensor = sensors[0] if sensors else f"{path}/hwmon/hwmon0"

    def scaled(name: str, by: int) -> int | Unknown:
        value = reading.integer(host, f"{sensor}/{name}")
        return value if isinstance(value, Unknown) else value // by

    total, used = number("mem_info_vram_total"), number("mem_info_vram_used")
    free = total - used if not isinstance(total, Unknown) and not isinstance(used, Unknown) else total
    return Gpu(
        index=index,
        vendor="amd",
        bdf=bdf,
        name=reading.text(host, f"{path}/product_name"),
        vbios=reading.text(host, f"{path}/vbios_version"),
        device_id=number("device"),
        memory_total_bytes=total,
        memory_used_bytes=used,
        memory_free_bytes=free,
        memory_reserved_bytes=0,
        bar1_total_bytes=number("mem_info_vis_vram_total"),
        bar1_used_bytes=number("mem_info_vis_vram_used"),
        utilization_percent=number("gpu_busy_percent"),
        # hwmon of amdgpu: power in microwatts, temperatures in thousandths of a degree; temp2 is the junction,
        # temp3 the memory (Linux Documentation/gpu/amdgpu/thermal.rst).
        power_mw=_first(scaled("power1_average", 1000), scaled("power1_input", 1000)),
        power_limit_mw=scaled("power1_cap", 1000),
        power_enforced_mw=scaled("power1_cap", 1000),
        power_default_mw=scaled("power1_cap_default", 1000),
        power_min_mw=scaled("power1_cap_min", 1000),
        power_max_mw=scaled("power1_cap_max", 1000),
        temperature_c=_first(scaled("temp2_input", 1000), scaled("temp1_input", 1000)),
        slowdown_temperature_c=_first(scaled("temp2_crit", 1000), scaled("temp1_crit", 1000)),
        memory_temperature_c=scaled("temp3_input", 1000),
        memory_limit_temperature_c=scaled("temp3_crit", 1000),
        power_cap_path=f"{sensor}/power1_cap",
        perf_level=reading.text(host, f"{path}/power_dpm_force_performance_level"),
        ecc_uncorrected_volatile=_ras(host, f"{path}/ras/umc_err_count"),
        replays=number("pcie_replay_count"),
        processes=Unknown("amdgpu's sysfs names no processes"),
    )


def _first(*values: int | Unknown) -> int | Unknown:
    return next((value for value in values if not isinstance(value, Unknown)), values[0])


def _ras(host: Host, path: str) -> int | Unknown:
    """Uncorrected errors of one RAS block (`ue: 0` and `ce: 0`)."""
    text = host.read(path)
    if isinstance(text, Unknown):
        return text
    match = re.search(r"ue:\s*(\d+)", text)
    return int(match[1]) if match else Unknown(f"{path} names no uncorrected errors")


def printed(text: str) -> tuple[Gpu, ...]:
    """The GPUs of rocm-smi's text or JSON."""
    from uncork.parsers import rocm

    return tuple(_printed(gpu) for gpu in rocm.parse(text).gpus)


def _printed(gpu: "Printed") -> Gpu:
    def value(name: str) -> int | Unknown:
        match = re.match(r"\(?(\d+)", gpu.values.get(name, ""))
        return int(match[1]) if match else NOT_READ

    bus = gpu.values.get("PCI Bus", "")
    return Gpu(
        index=gpu.index,
        vendor="amd",
        name=gpu.name or NOT_READ,
        bdf=bus.lower() if bus else NOT_READ,
        vbios=gpu.vbios or NOT_READ,
        perf_level=gpu.performance_level or NOT_READ,
        memory_total_bytes=NOT_READ if gpu.memory_total_bytes is None else gpu.memory_total_bytes,
        memory_used_bytes=value("VRAM Total Used Memory (B)"),
        temperature_c=NOT_READ if gpu.temperature_junction_c is None else int(gpu.temperature_junction_c),
        memory_temperature_c=value("Temperature (Sensor memory) (C)"),
        power_mw=NOT_READ if gpu.power_average_w is None else round(gpu.power_average_w * 1000),
        power_limit_mw=NOT_READ if gpu.power_cap_w is None else round(gpu.power_cap_w * 1000),
        power_max_mw=NOT_READ if gpu.power_cap_max_w is None else round(gpu.power_cap_max_w * 1000),
        utilization_percent=value("GPU use (%)"),
        link_width=NOT_READ if gpu.link_width is None else gpu.link_width,
    )
