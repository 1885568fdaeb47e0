"""One GPU as nvidia-smi prints it, and how its words become values."""

import re

import msgspec

_NOTHING = frozenset(
    (
        "",
        "N/A",
        "[N/A]",
        "[Not Supported]",
        "Not Supported",
        "ERR!",
        "Unknown Error",
        "[Unknown Error]",
        "None found",
    )
)
_NUMBER = re.compile(r"^-?\d{1,15}(?:\.\d{1,9})?")
_MEMORY = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "KB": 1000, "MB": 1_000_000, "GB": 10**9}


class Process(msgspec.Struct, frozen=True):
    """A process on a GPU."""

    pid: int
    name: str
    used_bytes: int | None = None


class MigDevice(msgspec.Struct, frozen=True):
    """A slice of a GPU, sizes in bytes."""

    memory_total_bytes: int | None = None
    bar1_total_bytes: int | None = None


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as nvidia-smi prints it; None is what this print does not say (or says N/A)."""

    index: int | None = None
    bus_id: str = ""  # 0000:06:00.0
    name: str | None = None
    architecture: str | None = None
    uuid: str | None = None
    vbios: str | None = None
    persistence: bool | None = None
    mig: bool | None = None
    mig_pending: bool | None = None
    compute_mode: str | None = None
    performance_state: str | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    addressing_mode: str | None = None
    display_active: bool | None = None
    virtualization: str | None = None
    c2c: bool | None = None
    gsp_firmware: str | None = None
    recovery_action: str | None = None
    reset_required: bool | None = None
    pcie_gen_max: int | None = None
    pcie_gen_current: int | None = None
    pcie_gen_device_max: int | None = None
    pcie_gen_host_max: int | None = None
    width_max: int | None = None
    width_current: int | None = None
    replays: int | None = None
    replay_rollovers: int | None = None
    throttle: tuple[str, ...] | None = None  # active reasons: idle, sw_power_cap, hw_thermal, …
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    bar1_total_bytes: int | None = None
    bar1_used_bytes: int | None = None
    utilization_percent: int | None = None
    retired_single: int | None = None
    retired_double: int | None = None
    retired_pending: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    ecc_volatile_correctable: int | None = None
    temperature_c: int | None = None
    temperature_limit_margin_c: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_shutdown_c: int | None = None
    temperature_memory_c: int | None = None
    power_draw_w: float | None = None
    power_limit_w: float | None = None  # enforced
    power_limit_requested_w: float | None = None
    power_default_w: float | None = None
    power_min_w: float | None = None
    power_max_w: float | None = None
    clock_sm_mhz: int | None = None
    clock_sm_max_mhz: int | None = None
    clock_memory_mhz: int | None = None
    clock_memory_max_mhz: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    confidential: str | None = None
    processes: tuple[Process, ...] | None = None
    mig_devices: tuple[MigDevice, ...] = ()


def text(value: str) -> str | None:
    """The words, or None where the tool has none."""
    value = value.strip()
    return None if value in _NOTHING or value.startswith("Requested functionality") else value


def number(value: str) -> int | None:
    """The whole number a value starts with."""
    found = _NUMBER.match(value.strip())
    return int(float(found[0])) if found else None


def decimal(value: str) -> float | None:
    """The number a value starts with."""
    found = _NUMBER.match(value.strip())
    return float(found[0]) if found else None


def switch(value: str) -> bool | None:
    """Enabled, Yes, On, Active → True; Disabled, No, Off, Not Active → False."""
    word = value.strip().rstrip("*").lower()
    if word in ("enabled", "yes", "on", "active", "1"):
        return True
    return False if word in ("disabled", "no", "off", "not active", "0") else None


def memory(value: str) -> int | None:
    """`32768 MiB` or `74MiB` in bytes."""
    found = re.match(r"^(\d{1,12}) ?([KMG]?i?B)\b", value.strip())
    return int(found[1]) * _MEMORY[found[2]] if found and found[2] in _MEMORY else None


def width(value: str) -> int | None:
    """`16x` or `16`."""
    found = re.match(r"^(\d{1,2})x?$", value.strip())
    return int(found[1]) if found else None
