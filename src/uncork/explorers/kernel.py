"""Kernel knobs: settings, counters that should stand still, and what the kernel said."""

import re
import time

from uncork.explorers import reading, serving
from uncork.host import Host
from uncork.host.recording import RecordingHost
from uncork.model.facts.container import Counter
from uncork.model.facts.kernel import HugePages, KernelFacts, SwapArea
from uncork.model.unknown import Unknown
from uncork.parsers import cpulist, procfs
from uncork.parsers.kernel_events import kernel_events

WINDOW_S = 0.25
# What checks ask for; one read a key.
SYSCTLS = (
    "kernel.numa_balancing",
    "kernel.nmi_watchdog",
    "kernel.sched_autogroup_enabled",
    "kernel.timer_migration",
    "kernel.split_lock_mitigate",
    "kernel.bpf_stats_enabled",
    "kernel.ftrace_enabled",
    "kernel.printk",
    "kernel.yama.ptrace_scope",
    "kernel.sched_min_granularity_ns",
    "kernel.sched_wakeup_granularity_ns",
    "kernel.sched_migration_cost_ns",
    "vm.swappiness",
    "vm.compaction_proactiveness",
    "vm.min_free_kbytes",
    "vm.zone_reclaim_mode",
    "vm.stat_interval",
    "vm.dirty_ratio",
    "vm.dirty_bytes",
    "vm.dirty_background_ratio",
    "vm.dirty_background_bytes",
    "vm.max_map_count",
    "vm.overcommit_memory",
    "vm.overcommit_ratio",
)
_STALLS = re.compile(
    r"allocstall\w*|compact_stall|compact_fail|pgscan_direct\w*|thp_fault_\w+|numa_hint_faults"
)
_SYSCTL_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
_CPU = "/sys/devices/system/cpu"
_THP = "/sys/kernel/mm/transparent_hugepage"


def explore(host: Host) -> KernelFacts:
    """Read /proc/sys, /sys/kernel, pressure, the kernel log; stall counters twice within `WINDOW_S`."""
    programs = serving.programs(host)
    host = RecordingHost(host)
    host.read("/proc/vmstat")
    started_s = time.monotonic()
    cpuinfo = host.read("/proc/cpuinfo")
    log = reading.kernel_log(host)
    files = _sysctl_files(host)
    if host.live:
        time.sleep(max(0.0, WINDOW_S - (time.monotonic() - started_s)))
    return KernelFacts(
        architecture=_architecture(host, cpuinfo),
        vendor=_lscpu_or(host, cpuinfo, r"^(?:vendor_id\s*|Vendor ID): *(\S+)"),
        sysctls={key: sysctl(host, key) for key in SYSCTLS},
        thp_enabled=reading.chosen(host, f"{_THP}/enabled"),
        thp_defrag=reading.chosen(host, f"{_THP}/defrag"),
        khugepaged_defrag=reading.text(host, f"{_THP}/khugepaged/defrag"),
        swaps=reading.parsed(host, "/proc/swaps", _swap_areas),
        zswap=reading.text(host, "/sys/module/zswap/parameters/enabled"),
        memory_bytes=reading.parsed(host, "/proc/meminfo", procfs.memory_bytes),
        vmstat=_vmstat(host),
        pressure={
            name: reading.parsed(host, f"/proc/pressure/{name}", procfs.pressure)
            for name in ("cpu", "memory", "io")
        },
        clocksource=reading.text(host, "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        clocksources=reading.parsed(
            host,
            "/sys/devices/system/clocksource/clocksource0/available_clocksource",
            lambda text: tuple(text.split()),
        ),
        vulnerabilities=_vulnerabilities(host),
        cpus_present=_cpus(host, "present", r"^CPU\(s\): *(\d+)"),
        cpus_online=_cpus(host, "online", r"^On-line CPU\(s\) list: *(\S+)"),
        cpus_isolated=reading.cpus(host, f"{_CPU}/isolated"),
        cpus_nohz_full=reading.cpus(host, f"{_CPU}/nohz_full"),
        smt=reading.text(host, f"{_CPU}/smt/control"),
        cpu_flags=_flags(host, cpuinfo),
        ksm_run=reading.integer(host, "/sys/kernel/mm/ksm/run"),
        ksm_sharing=reading.integer(host, "/sys/kernel/mm/ksm/pages_sharing"),
        hugepages=_hugepages(host),
        tracer=reading.text(host, "/sys/kernel/tracing/current_tracer"),
        trace_events=reading.text(host, "/sys/kernel/tracing/set_event"),
        audit_rules=_audit_rules(host),
        programs=programs,
        tuned_profile=reading.text(host, "/etc/tuned/active_profile"),
        sysctl_files=files,
        events=log if isinstance(log, Unknown) else kernel_events(log),
        profile="\n".join(f"{hint}\n{text}" for _, hint, text in reading.attached_pieces(host, "profile")),
    )


def sysctl(host: Host, key: str) -> str | Unknown:
    """A sysctl with its white space made plain (tcp_rmem has tabs)."""
    found = host.read("/proc/sys/" + key.replace(".", "/"))
    return found if isinstance(found, Unknown) else " ".join(found.split())


def _swap_areas(text: str) -> tuple[SwapArea, ...]:
    return tuple(SwapArea(s.name, s.type, s.size_bytes, s.used_bytes) for s in procfs.swaps(text))


def _vmstat(host: Host) -> dict[str, Counter] | Unknown:
    first = reading.parsed(host, "/proc/vmstat", procfs.counters)
    second = reading.parsed(host, "/proc/vmstat", procfs.counters, sample=2)
    if isinstance(first, Unknown):
        return first
    later = first if isinstance(second, Unknown) else second
    return {
        name: Counter(value, later.get(name, value))
        for name, value in first.items()
        if _STALLS.fullmatch(name)
    }


def _from_lscpu(host: Host, pattern: str) -> str | Unknown:
    answer = host.run(("lscpu",))
    if isinstance(answer, Unknown):
        return answer
    match = re.search(pattern, answer.stdout, re.M)
    return match[1] if match else Unknown(f"lscpu does not say {pattern}")


def _lscpu_or(host: Host, cpuinfo: str | Unknown, pattern: str) -> str | Unknown:
    if isinstance(cpuinfo, Unknown):
        return _from_lscpu(host, pattern)
    match = re.search(pattern, cpuinfo, re.M)
    return match[1] if match else Unknown("/proc/cpuinfo names no vendor")


def _architecture(host: Host, cpuinfo: str | Unknown) -> str | Unknown:
    if isinstance(cpuinfo, Unknown):
        return _from_lscpu(host, r"^Architecture: *(\S+)")
    if re.search(r"^flags\s*:", cpuinfo, re.M):
        return "x86_64"
    if "CPU implementer" in cpuinfo:
        return "aarch64"
    return Unknown("/proc/cpuinfo is of no architecture known here")


def _flags(host: Host, cpuinfo: str | Unknown) -> tuple[str, ...] | Unknown:
    pattern = r"^(?:flags|Flags|Features)\s*: *(.*)$"
    if isinstance(cpuinfo, Unknown):
        found = _from_lscpu(host, pattern)
        return found if isinstance(found, Unknown) else tuple(found.split())
    match = re.search(pattern, cpuinfo, re.M)
    return tuple(match[1].split()) if match else Unknown("/proc/cpuinfo shows no flags")


def _cpus(host: Host, name: str, pattern: str) -> tuple[int, ...] | Unknown:
    found = reading.cpus(host, f"{_CPU}/{name}")
    if not isinstance(found, Unknown):
        return found
    said = _from_lscpu(host, pattern)
    if isinstance(said, Unknown):
        return found
    if name == "present":
        return tuple(range(int(said)))
    numbers = cpulist.parse(said)
    return found if numbers is None else numbers


def _vulnerabilities(host: Host) -> dict[str, str] | Unknown:
    names = host.list(f"{_CPU}/vulnerabilities")
    if not isinstance(names, Unknown):
        texts = {name: reading.text(host, f"{_CPU}/vulnerabilities/{name}") for name in names}
        return {name: text for name, text in texts.items() if not isinstance(text, Unknown)}
    answer = host.run(("lscpu",))
    if isinstance(answer, Unknown):
        return names
    said = re.findall(r"^Vulnerability ([^:]+): *(.*)$", answer.stdout, re.M)
    return {name.lower().replace(" ", "_"): text for name, text in said} if said else names


def _hugepages(host: Host) -> tuple[HugePages, ...] | Unknown:
    root = "/sys/kernel/mm/hugepages"
    names = host.list(root)
    if isinstance(names, Unknown):
        return names
    found = []
    for name in names:
        match = re.fullmatch(r"hugepages-(\d+)kB", name)
        reserved = reading.integer(host, f"{root}/{name}/nr_hugepages")
        free = reading.integer(host, f"{root}/{name}/free_hugepages")
        if match and isinstance(reserved, int) and isinstance(free, int):
            found.append(HugePages(f"{root}/{name}", int(match[1]) * 1024, reserved, free))
    return tuple(found)


def _audit_rules(host: Host) -> tuple[str, ...] | Unknown:
    names = host.list("/etc/audit/rules.d")
    if isinstance(names, Unknown):
        return names
    rules: list[str] = []
    for name in names:
        text = host.read(f"/etc/audit/rules.d/{name}")
        if isinstance(text, Unknown):
            return text
        rules += [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return tuple(rules)


def _sysctl_files(host: Host) -> dict[str, tuple[str, str]] | Unknown:
    """What systemd-sysctl applies at boot: files by name, an earlier folder hides a later one's (sysctl.d(5))."""
    files: dict[str, str] = {}
    for folder in reversed(_SYSCTL_FOLDERS):
        names = host.list(folder)
        if isinstance(names, Unknown):
            if not names.absent:
                return names
            continue
        files |= {name: f"{folder}/{name}" for name in names if name.endswith(".conf")}
    found: dict[str, tuple[str, str]] = {}
    for path in (*(files[name] for name in sorted(files)), "/etc/sysctl.conf"):
        text = host.read(path)
        for line in "" if isinstance(text, Unknown) else text.splitlines():
            key, equals, value = line.partition("=")
            if equals and not key.strip().startswith(("#", ";")):
                found[key.strip().lstrip("-").replace("/", ".")] = (" ".join(value.split()), path)
    return found
