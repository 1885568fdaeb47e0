"""What each form of nvidia-smi calls the fields of a GPU."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from uncork.parsers import pci_address
from uncork.parsers.nvidia_smi_gpu import (
    Gpu,
    MigDevice,
    Process,
    decimal,
    memory,
    number,
    switch,
    text,
    width,
)

Read = Callable[[str], Any]
# field: (how to read it, names in `-q`, names in the XML, name of --query-gpu). The first name present wins.
_FIELDS: dict[str, tuple[Read, tuple[str, ...], tuple[str, ...], str]] = {
    "name": (text, ("Product Name",), ("product_name",), "name"),
    "architecture": (text, ("Product Architecture",), ("product_architecture",), ""),
    "uuid": (text, ("GPU UUID",), ("uuid",), "uuid"),
    "vbios": (text, ("VBIOS Version",), ("vbios_version",), "vbios_version"),
    "persistence": (switch, ("Persistence Mode",), ("persistence_mode",), "persistence_mode"),
    "mig": (switch, ("MIG Mode/Current",), ("mig_mode/current_mig",), "mig.mode.current"),
    "mig_pending": (switch, ("MIG Mode/Pending",), ("mig_mode/pending_mig",), "mig.mode.pending"),
    "compute_mode": (text, ("Compute Mode",), ("compute_mode",), "compute_mode"),
    "performance_state": (text, ("Performance State",), ("performance_state",), "pstate"),
    "ecc": (switch, ("ECC Mode/Current", "Ecc Mode/Current"), ("ecc_mode/current_ecc",), "ecc.mode.current"),
    "ecc_pending": (
        switch,
        ("ECC Mode/Pending", "Ecc Mode/Pending"),
        ("ecc_mode/pending_ecc",),
        "ecc.mode.pending",
    ),
    "addressing_mode": (text, ("Addressing Mode",), ("addressing_mode",), "addressing_mode"),
    "display_active": (switch, ("Display Active",), ("display_active",), "display_active"),
    "virtualization": (
        text,
        ("GPU Virtualization Mode/Virtualization Mode", "GPU Virtualization Mode/Virtualization mode"),
        ("gpu_virtualization_mode/virtualization_mode",),
        "",
    ),
    "c2c": (switch, ("GPU C2C Mode",), ("c2c_mode",), "c2c.mode"),
    "gsp_firmware": (text, ("GSP Firmware Version",), ("gsp_firmware_version",), "gsp.mode.current"),
    "recovery_action": (text, ("GPU Recovery Action",), ("gpu_recovery_action",), "gpu_recovery_action"),
    "reset_required": (
        switch,
        ("GPU Reset Status/Reset Required",),
        ("gpu_reset_status/reset_required",),
        "reset_status.reset_required",
    ),
    "pcie_gen_max": (
        number,
        ("PCI/GPU Link Info/PCIe Generation/Max",),
        ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
        "pcie.link.gen.max",
    ),
    "pcie_gen_current": (
        number,
        ("PCI/GPU Link Info/PCIe Generation/Current",),
        ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
        "pcie.link.gen.current",
    ),
    "pcie_gen_device_max": (
        number,
        ("PCI/GPU Link Info/PCIe Generation/Device Max",),
        ("pci/pci_gpu_link_info/pcie_gen/max_device_link_gen",),
        "pcie.link.gen.gpumax",
    ),
    "pcie_gen_host_max": (
        number,
        ("PCI/GPU Link Info/PCIe Generation/Host Max",),
        ("pci/pci_gpu_link_info/pcie_gen/max_host_link_gen",),
        "pcie.link.gen.hostmax",
    ),
    "width_max": (
        width,
        ("PCI/GPU Link Info/Link Width/Max",),
        ("pci/pci_gpu_link_info/link_widths/max_link_width",),
        "pcie.link.width.max",
    ),
    "width_current": (
        width,
        ("PCI/GPU Link Info/Link Width/Current",),
        ("pci/pci_gpu_link_info/link_widths/current_link_width",),
        "pcie.link.width.current",
    ),
    "replays": (number, ("PCI/Replays Since Reset", "PCI/Replays since reset"), ("pci/replay_counter",), ""),
    "replay_rollovers": (number, ("PCI/Replay Number Rollovers",), ("pci/replay_rollover_counter",), ""),
    "memory_total_bytes": (memory, ("FB Memory Usage/Total",), ("fb_memory_usage/total",), "memory.total"),
    "memory_used_bytes": (memory, ("FB Memory Usage/Used",), ("fb_memory_usage/used",), "memory.used"),
    "bar1_total_bytes": (memory, ("BAR1 Memory Usage/Total",), ("bar1_memory_usage/total",), ""),
    "bar1_used_bytes": (memory, ("BAR1 Memory Usage/Used",), ("bar1_memory_usage/used",), ""),
    "utilization_percent": (
        number,
        ("Utilization/GPU", "Utilization/Gpu"),
        ("utilization/gpu_util",),
        "utilization.gpu",
    ),
    "retired_single": (
        number,
        ("Retired Pages/Single Bit ECC",),
        ("retired_pages/multiple_single_bit_retirement/retired_count",),
        "retired_pages.single_bit_ecc.count",
    ),
    "retired_double": (
        number,
        ("Retired Pages/Double Bit ECC",),
        ("retired_pages/double_bit_retirement/retired_count",),
        "retired_pages.double_bit.count",
    ),
    "retired_pending": (
        switch,
        ("Retired Pages/Pending Page Blacklist", "Retired Pages/Pending"),
        ("retired_pages/pending_blacklist", "retired_pages/pending_retirement"),
        "retired_pages.pending",
    ),
    "remapped_correctable": (
        number,
        ("Remapped Rows/Correctable Error",),
        ("remapped_rows/remapped_row_corr",),
        "remapped_rows.correctable",
    ),
    "remapped_uncorrectable": (
        number,
        ("Remapped Rows/Uncorrectable Error",),
        ("remapped_rows/remapped_row_unc",),
        "remapped_rows.uncorrectable",
    ),
    "remap_pending": (
        switch,
        ("Remapped Rows/Pending",),
        ("remapped_rows/remapped_row_pending",),
        "remapped_rows.pending",
    ),
    "remap_failed": (
        switch,
        ("Remapped Rows/Remapping Failure Occurred",),
        ("remapped_rows/remapped_row_failure",),
        "remapped_rows.failure",
    ),
    "temperature_c": (
        number,
        ("Temperature/GPU Current Temp",),
        ("temperature/gpu_temp",),
        "temperature.gpu",
    ),
    "temperature_limit_margin_c": (
        number,
        ("Temperature/GPU T.Limit Temp",),
        ("temperature/gpu_temp_tlimit",),
        "temperature.gpu.tlimit",
    ),
    "temperature_slowdown_c": (
        number,
        ("Temperature/GPU Slowdown Temp",),
        ("temperature/gpu_temp_slow_threshold",),
        "",
    ),
    "temperature_shutdown_c": (
        number,
        ("Temperature/GPU Shutdown Temp",),
        ("temperature/gpu_temp_max_threshold",),
        "",
    ),
    "temperature_memory_c": (
        number,
        ("Temperature/Memory Current Temp",),
        ("temperature/memory_temp",),
        "temperature.memory",
    ),
    "power_draw_w": (
        decimal,
        (
            *("GPU Power Readings/Instantaneous Power Draw", "GPU Power Readings/Average Power Draw"),
            *("GPU Power Readings/Power Draw", "Power Readings/Power Draw"),
        ),
        (
            *("gpu_power_readings/instant_power_draw", "gpu_power_readings/average_power_draw"),
            *("gpu_power_readings/power_draw", "power_readings/power_draw"),
        ),
        "power.draw",
    ),
    "power_limit_w": (
        decimal,
        (
            *("GPU Power Readings/Current Power Limit", "Power Readings/Enforced Power Limit"),
            *("GPU Power Readings/Enforced Power Limit", "Power Readings/Power Limit"),
        ),
        (
            *("gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit"),
            *("gpu_power_readings/enforced_power_limit", "power_readings/power_limit"),
        ),
        "power.limit",
    ),
    "power_limit_requested_w": (
        decimal,
        ("GPU Power Readings/Requested Power Limit", "Power Readings/Power Limit"),
        ("gpu_power_readings/requested_power_limit", "power_readings/power_limit"),
        "",
    ),
    "power_default_w": (
        decimal,
        ("GPU Power Readings/Default Power Limit", "Power Readings/Default Power Limit"),
        ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
        "power.default_limit",
    ),
    "power_min_w": (
        decimal,
        ("GPU Power Readings/Min Power Limit", "Power Readings/Min Power Limit"),
        ("gpu_power_readings/min_power_limit", "power_readings/min_power_limit"),
        "power.min_limit",
    ),
    "power_max_w": (
        decimal,
        ("GPU Power Readings/Max Power Limit", "Power Readings/Max Power Limit"),
        ("gpu_power_readings/max_power_limit", "power_readings/max_power_limit"),
        "power.max_limit",
    ),
    "clock_sm_mhz": (number, ("Clocks/SM",), ("clocks/sm_clock",), "clocks.sm"),
    "clock_sm_max_mhz": (number, ("Max Clocks/SM",), ("max_clocks/sm_clock",), "clocks.max.sm"),
    "clock_memory_mhz": (number, ("Clocks/Memory",), ("clocks/mem_clock",), "clocks.mem"),
    "clock_memory_max_mhz": (number, ("Max Clocks/Memory",), ("max_clocks/mem_clock",), "clocks.max.mem"),
    "fabric_state": (text, ("Fabric/State",), ("fabric/state",), "fabric.state"),
    "fabric_status": (text, ("Fabric/Status",), ("fabric/status",), "fabric.status"),
}
_CSV = {names[3]: field for field, names in _FIELDS.items() if names[3]}
_CSV_ALSO = {"gpu_name": "name", "gpu_uuid": "uuid", "enforced.power.limit": "power_limit_w"}
# The reasons' names in the three layouts, without their section → one word.
_REASONS = (
    ("idle", ("Idle", "gpu_idle")),
    ("applications_clocks", ("Applications Clocks Setting", "applications_clocks_setting")),
    ("sw_power_cap", ("SW Power Cap", "sw_power_cap")),
    ("hw_slowdown", ("HW Slowdown", "hw_slowdown")),
    ("hw_thermal", ("HW Thermal Slowdown", "hw_thermal_slowdown")),
    ("hw_power_brake", ("HW Power Brake Slowdown", "hw_power_brake_slowdown")),
    ("sync_boost", ("Sync Boost", "sync_boost")),
    ("sw_thermal", ("SW Thermal Slowdown", "sw_thermal_slowdown")),
    ("display_clock", ("Display Clock Setting", "display_clocks_setting")),
)
_REASON = {name: word for word, names in _REASONS for name in names}


def _read(found: dict[str, str], *, xml: bool) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for field, (read, in_q, in_xml, _) in _FIELDS.items():
        for name in in_xml if xml else in_q:
            if name in found and (value := read(found[name])) is not None:
                said[field] = value
                break
    return said


def _throttle(found: dict[str, str], prefix: str) -> tuple[str, ...] | None:
    reasons = {}
    for path, value in found.items():
        if path.startswith(prefix) and "counters" not in path.lower():
            name = re.sub(r"^.*/|^clocks_(?:throttle|event)_reason_", "", path.rpartition("/")[2])
            name = re.sub(r"^clocks_(?:throttle|event)_reason_", "", name)
            if name in _REASON:
                reasons[_REASON[name]] = switch(value)
    return tuple(word for word, active in reasons.items() if active) if reasons else None


def from_q(found: dict[str, str], index: int) -> Gpu:
    """A GPU from the paths of `-q`."""
    said = _read(found, xml=False)
    said["bus_id"] = (
        pci_address.full(found.get("PCI/Bus Id") or found.get("bus") or "") if _has_bus(found) else ""
    )
    said["index"] = index
    said["throttle"] = _throttle(found, "Clocks Throttle Reasons") or _throttle(found, "Clocks Event Reasons")
    if said["throttle"] is None:
        said["throttle"] = _throttle(found, "Clocks ")
    for scope in ("Volatile", "Aggregate"):
        said[f"ecc_{scope.lower()}_uncorrectable"] = _sum(found, f"ECC Errors/{scope}/", "ncorrectable")
    said["ecc_volatile_correctable"] = _sum(found, "ECC Errors/Volatile/", " Correctable")
    return Gpu(**said)


def _has_bus(found: dict[str, str]) -> bool:
    return bool(found.get("PCI/Bus Id") or found.get("bus"))


def _sum(found: dict[str, str], start: str, word: str) -> int | None:
    values = [number(value) for path, value in found.items() if path.startswith(start) and word in path]
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def from_xml(found: dict[str, str], bus: str, index: int, slices: Iterable[dict[str, str]] = ()) -> Gpu:
    """A GPU from the paths of the XML, and of each of its MIG devices."""
    said = _read(found, xml=True)
    said["mig_devices"] = tuple(
        MigDevice(
            memory(one.get("fb_memory_usage/total", "")),
            memory(one.get("bar1_memory_usage/total", "")),
        )
        for one in slices
    )
    bus = found.get("pci/pci_bus_id") or bus
    said["bus_id"] = pci_address.full(bus) if bus else ""
    said["index"] = index
    said["throttle"] = _throttle(found, "clocks_throttle_reasons/")
    if said["throttle"] is None:
        said["throttle"] = _throttle(found, "clocks_event_reasons/")
    for scope in ("volatile", "aggregate"):
        said[f"ecc_{scope}_uncorrectable"] = _sum(found, f"ecc_errors/{scope}/", "uncorrectable")
    said["ecc_volatile_correctable"] = _sum(found, "ecc_errors/volatile/", "_correctable")
    return Gpu(**said)


def from_table(row: dict[str, str]) -> Gpu:
    """A GPU from the two or three lines of the table."""
    processes = tuple(
        Process(int(key.split()[1]), value.partition(" ")[2], int(value.partition(" ")[0]) << 20)
        for key, value in row.items()
        if key.startswith("process ")
    )
    mode = row.get("mode", "")
    ecc = row.get("ecc", "")
    return Gpu(
        index=int(row["index"][:6]),
        bus_id=pci_address.full(row["bus"]),
        name=row["name"].removesuffix("...").strip(),
        persistence=switch(row.get("persistence", "")),
        display_active=switch(row.get("display", "")),
        ecc={"N/A": None, "Off": False}.get(ecc, True if ecc.isdigit() else None),
        ecc_volatile_uncorrectable=int(ecc[:12]) if ecc.isdigit() else None,
        mig=switch(row.get("mig", "")),
        compute_mode={"E. Process": "Exclusive_Process", "E. Thread": "Exclusive_Thread"}.get(
            mode, mode or None
        ),
        performance_state=text(row.get("perf", "")),
        temperature_c=number(row.get("temp", "")),
        power_draw_w=decimal(row.get("draw", "")),
        power_limit_w=decimal(row.get("limit", "")),
        memory_used_bytes=memory(row.get("used", "")),
        memory_total_bytes=memory(row.get("total", "")),
        utilization_percent=number(row.get("util", "")),
        processes=processes or None,
    )


def is_csv_field(name: str) -> bool:
    """Whether `nvidia-smi --query-gpu` has a field of that name that is read here, or one that names the GPU."""
    return (
        name in _CSV
        or name in _CSV_ALSO
        or name in ("index", "pci.bus_id", "gpu_bus_id", "driver_version", "timestamp")
    )


def from_csv(row: dict[str, str]) -> Gpu:
    """A GPU from named columns."""
    said: dict[str, Any] = {}
    for name, value in row.items():
        field = _CSV.get(name) or _CSV_ALSO.get(name)
        if field and (read := _FIELDS[field][0](value)) is not None:
            said[field] = read
    bus = row.get("pci.bus_id") or row.get("gpu_bus_id") or ""
    index = number(row.get("index", ""))
    return Gpu(**said, bus_id=pci_address.full(bus) if bus else "", index=index)


def same(a: Gpu, b: Gpu) -> bool:
    """Whether two prints are of one GPU: by bus id where both have one, else by index."""
    if a.bus_id and b.bus_id:
        return a.bus_id == b.bus_id
    return a.index is not None and a.index == b.index


def filled(a: Gpu, b: Gpu) -> Gpu:
    """`a`, with what it does not say taken from `b`."""
    missing = {
        name: getattr(b, name)
        for name in Gpu.__struct_fields__
        if getattr(a, name) in (None, "", ()) and getattr(b, name) not in (None, "")
    }
    return msgspec.structs.replace(a, **missing)
