"""Kernel knobs."""

import msgspec

from uncork.model.facts.container import Counter
from uncork.model.unknown import Unknown


class SwapArea(msgspec.Struct, frozen=True):
    """A swap file, partition or compressed-memory device in use."""

    name: str
    type: str
    size_bytes: int
    used_bytes: int


class HugePages(msgspec.Struct, frozen=True):
    """A pool of reserved huge pages."""

    folder: str
    page_bytes: int
    reserved: int
    free: int


class KernelEvents(msgspec.Struct, frozen=True):
    """Lines of the kernel log that a check looks at, in order, each list cut at a few hundred."""

    hung_tasks: tuple[str, ...] = ()
    oom_kills: tuple[str, ...] = ()
    fork_rejected: tuple[str, ...] = ()
    split_locks: tuple[str, ...] = ()
    allocation_failures: tuple[str, ...] = ()
    clock_unstable: tuple[str, ...] = ()
    machine_checks: tuple[str, ...] = ()
    memory_errors: tuple[str, ...] = ()
    apic: tuple[str, ...] = ()
    no_cppc: tuple[str, ...] = ()
    memory_encryption: tuple[str, ...] = ()
    microcode: tuple[str, ...] = ()
    unknown_parameters: tuple[str, ...] = ()
    conntrack_full: tuple[str, ...] = ()
    audit_lost: tuple[str, ...] = ()
    zeroing: tuple[str, ...] = ()
    suppressed: int = 0  # messages that the rate limit swallowed, as the log says
    per_second: float | None = None  # messages a second after start-up, None where the log has no times


class KernelFacts(msgspec.Struct, frozen=True):
    """Kernel knobs: what /proc/sys and /sys/kernel hold, and what the kernel said."""

    architecture: str | Unknown  # x86_64, aarch64
    vendor: str | Unknown  # GenuineIntel, AuthenticAMD, …; of the processor
    sysctls: dict[str, str | Unknown]
    thp_enabled: str | Unknown
    thp_defrag: str | Unknown
    khugepaged_defrag: str | Unknown
    swaps: tuple[SwapArea, ...] | Unknown
    zswap: str | Unknown
    memory_bytes: dict[str, int] | Unknown  # /proc/meminfo
    vmstat: dict[str, Counter] | Unknown  # stalls and scans
    pressure: dict[str, dict[str, dict[str, float]] | Unknown]  # cpu, memory, io → some, full → avg10 …
    clocksource: str | Unknown
    clocksources: tuple[str, ...] | Unknown
    vulnerabilities: dict[str, str] | Unknown
    cpus_present: tuple[int, ...] | Unknown
    cpus_online: tuple[int, ...] | Unknown
    cpus_isolated: tuple[int, ...] | Unknown
    cpus_nohz_full: tuple[int, ...] | Unknown
    smt: str | Unknown  # on, off, forceoff, notsupported, notimplemented
    cpu_flags: tuple[str, ...] | Unknown
    ksm_run: int | Unknown
    ksm_sharing: int | Unknown
    hugepages: tuple[HugePages, ...] | Unknown
    tracer: str | Unknown
    trace_events: str | Unknown
    audit_rules: tuple[str, ...] | Unknown
    programs: frozenset[str] | Unknown  # base names of what runs
    tuned_profile: str | Unknown
    sysctl_files: dict[str, tuple[str, str]] | Unknown  # key → value, the file that wins at boot
    events: KernelEvents | Unknown
    profile: str  # attached perf and function-latency output
