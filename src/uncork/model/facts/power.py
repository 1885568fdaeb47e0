"""Power, clocks and C-states of the processors. The GPUs' are in the driver's facts."""

import msgspec

from uncork.model.unknown import Unknown


class Policy(msgspec.Struct, frozen=True):
    """One cpufreq policy; frequencies in kHz."""

    path: str
    driver: str | Unknown
    governor: str | Unknown
    governors: tuple[str, ...] | Unknown
    epp: str | Unknown
    epps: tuple[str, ...] | Unknown
    max_khz: int | Unknown
    min_khz: int | Unknown
    hardware_max_khz: int | Unknown
    base_khz: int | Unknown
    bios_limit_khz: int | Unknown
    now_khz: int | Unknown


class IdleState(msgspec.Struct, frozen=True):
    """One idle state of the first CPU."""

    number: int
    name: str
    latency_us: int
    disabled: bool
    usage: int | Unknown


class Cap(msgspec.Struct, frozen=True):
    """A RAPL constraint of a package, in microwatts."""

    path: str
    name: str
    limit_uw: int
    max_uw: int | Unknown


class PowerFacts(msgspec.Struct, frozen=True):
    """Power, clocks and C-states of the processors."""

    policies: tuple[Policy, ...] | Unknown
    boost: bool | Unknown
    boost_path: str
    max_perf_pct: int | Unknown
    amd_pstate: str | Unknown
    cpu_vendor: str | Unknown
    cpu_family: int | Unknown
    cpu_model: int | Unknown
    cpu_name: str | Unknown
    cppc: bool | Unknown
    idle_states: tuple[IdleState, ...] | Unknown
    idle_driver: str | Unknown
    idle_governor: str | Unknown
    idle_governors: tuple[str, ...] | Unknown
    latency_us: int | Unknown  # what /dev/cpu_dma_latency asks for now; negative or huge is no request
    resume_latency_us: str | Unknown  # of CPU 0: "0" no constraint, "n/a" none at all
    epb: int | Unknown
    platform_profile: str | Unknown
    platform_profiles: tuple[str, ...] | Unknown
    uncore: tuple[tuple[str, int, int, int], ...] | Unknown  # folder, minimum, maximum, initial minimum (kHz)
    throttle_counts: tuple[int, int] | Unknown  # core and package throttling events since boot, all CPUs
    caps: tuple[Cap, ...] | Unknown
    node_cap: tuple[tuple[str, int, int], ...]  # acpi_power_meter: path, cap in microwatts (0: none), alarm
    cpus: int | Unknown
