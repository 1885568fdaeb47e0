"""The kernel log, as dmesg or the journal print it → the lines that checks look at."""

import re

from uncork.model.facts.kernel import KernelEvents

_MOST = 200
# field → a word that must be in the log at all, and what a line must match. The word keeps a long log cheap.
_KINDS: dict[str, tuple[tuple[str, ...], re.Pattern[str]]] = {
    "hung_tasks": (
        ("blocked for more than", "soft lockup"),
        re.compile(r"task \S.* blocked for more than \d+ seconds|soft lockup - CPU#\d+ stuck for"),
    ),
    "oom_kills": (
        ("Out of memory", "oom-kill", "Memory cgroup out of memory"),
        re.compile(r"(Out of memory|Memory cgroup out of memory|Killed process \d+)"),
    ),
    "fork_rejected": (("fork rejected",), re.compile(r"fork rejected by pids controller")),
    "split_locks": (
        ("split_lock", "split lock", "bus_lock"),
        re.compile(r"x86/split lock detection: #(AC|DB): \S+/\d+ took a"),
    ),
    "allocation_failures": (("page allocation failure",), re.compile(r"page allocation failure: order:\d+")),
    "clock_unstable": (
        ("unstable",),
        re.compile(r"Marking (clocksource '?tsc|TSC unstable)|clocksource 'tsc\S*' .*unstable", re.I),
    ),
    "machine_checks": (
        ("Hardware Error", "Machine check"),
        re.compile(
            r"\[Hardware Error\]: (Machine [Cc]heck|CPU \d+|Corrected|Uncorrected|Deferred)"
            r"|Machine check events"
        ),
    ),
    "memory_errors": (
        ("EDAC", "Memory failure"),
        re.compile(r"EDAC .*\b\d+ (CE|UE)\b|Memory failure: 0x"),
    ),
    "apic": (
        ("APIC", "x2apic"),
        re.compile(
            r"APIC id.*(exceed|ignored)|NR_CPUS/possible_cpus limit|x2apic: (disabled|IRQ remapping)"
            r"|not all CPUs",
            re.I,
        ),
    ),
    "no_cppc": (("_CPC",), re.compile(r"amd_pstate: the _CPC object is not present", re.I)),
    "memory_encryption": (
        ("Memory Encryption Features active",),
        re.compile(r"Memory Encryption Features active: .*(SME|SEV|TDX)"),
    ),
    "microcode": (
        ("microcode",),
        re.compile(r"microcode: .*(updated early|revision|patch_level)", re.I),
    ),
    "unknown_parameters": (
        ("nknown kernel command line", "Unknown option", "command line parameter"),
        re.compile(
            r"Unknown kernel command line parameters|PCI: Unknown option|Can't parse ACS command line"
        ),
    ),
    "conntrack_full": (("nf_conntrack",), re.compile(r"nf_conntrack: (nf_conntrack: )?table full")),
    "audit_lost": (
        ("audit",),
        re.compile(r"audit: (audit_lost=[1-9]|backlog limit exceeded|rate limit exceeded)"),
    ),
    "zeroing": (("mem auto-init",), re.compile(r"mem auto-init: ")),
}
_TIME = re.compile(r"^\[\s*(\d{1,10}\.\d{1,6})\]", re.M)
_SUPPRESSED = re.compile(r"(\d{1,9}) callbacks suppressed|suppressed (\d{1,9}) ")
STARTUP_S = 120.0  # drivers introduce themselves in the first minutes


def kernel_events(log: str) -> KernelEvents:
    """The lines of interest of a kernel log of any length, in one pass over the kinds that occur in it."""
    found = {field: tuple(_lines(log, words, pattern)) for field, (words, pattern) in _KINDS.items()}
    suppressed = sum(int(a or b) for a, b in _SUPPRESSED.findall(log)) if "suppressed" in log else 0
    return KernelEvents(**found, suppressed=suppressed, per_second=_rate(log))


def _lines(log: str, words: tuple[str, ...], pattern: re.Pattern[str]) -> list[str]:
    found: list[str] = []
    for word in words:
        start = 0
        while (at := log.find(word, start)) >= 0 and len(found) < _MOST:
            begin, end = log.rfind("\n", 0, at) + 1, log.find("\n", at)
            end = len(log) if end < 0 else end
            line = log[begin : min(end, begin + 500)].strip()
            if pattern.search(line) and line not in found[-1:]:
                found.append(line)
            start = end
    return list(dict.fromkeys(found))


def _rate(log: str) -> float | None:
    """Messages a second from `STARTUP_S` to the last one."""
    times = [float(time) for time in _TIME.findall(log)]
    late = [time for time in times if time > STARTUP_S]
    if not late or max(late) - STARTUP_S < 60:
        return 0.0 if times else None
    return len(late) / (max(late) - STARTUP_S)
