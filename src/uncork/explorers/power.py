"""Power, clocks and C-states."""

import re
import struct

from uncork.explorers import reading
from uncork.host import Host
from uncork.model.facts.power import Cap, IdleState, Policy, PowerFacts
from uncork.model.unknown import Unknown

CPU = "/sys/devices/system/cpu"


def explore(host: Host) -> PowerFacts:
    """Read cpufreq, cpuidle, RAPL, thermal counters and what the platform says."""
    cpuinfo = host.read("/proc/cpuinfo")
    boost_path, boost = _boost(host)
    return PowerFacts(
        policies=_policies(host),
        boost=boost,
        boost_path=boost_path,
        max_perf_pct=reading.integer(host, f"{CPU}/intel_pstate/max_perf_pct"),
        amd_pstate=reading.text(host, f"{CPU}/amd_pstate/status"),
        cpu_vendor=_cpu(cpuinfo, "vendor_id"),
        cpu_family=reading.number(_cpu(cpuinfo, "cpu family"), "/proc/cpuinfo"),
        cpu_model=reading.number(_cpu(cpuinfo, "model"), "/proc/cpuinfo"),
        cpu_name=_cpu(cpuinfo, "model name"),
        cppc=cpuinfo if isinstance(cpuinfo, Unknown) else " cppc" in _flags(cpuinfo),
        idle_states=_idle_states(host),
        idle_driver=reading.text(host, f"{CPU}/cpuidle/current_driver"),
        idle_governor=_first_text(
            host, f"{CPU}/cpuidle/current_governor", f"{CPU}/cpuidle/current_governor_ro"
        ),
        idle_governors=_words(host, f"{CPU}/cpuidle/available_governors"),
        latency_us=_latency(host),
        resume_latency_us=reading.text(host, f"{CPU}/cpu0/power/pm_qos_resume_latency_us"),
        epb=reading.integer(host, f"{CPU}/cpu0/power/energy_perf_bias"),
        platform_profile=reading.text(host, "/sys/firmware/acpi/platform_profile"),
        platform_profiles=_words(host, "/sys/firmware/acpi/platform_profile_choices"),
        uncore=_uncore(host),
        throttle_counts=_throttle_counts(host),
        caps=_caps(host),
        node_cap=_node_cap(host),
        cpus=_count(host),
    )


def _cpu(cpuinfo: str | Unknown, key: str) -> str | Unknown:
    if isinstance(cpuinfo, Unknown):
        return cpuinfo
    match = re.search(rf"^{key}\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match[1].strip() if match else Unknown(f"/proc/cpuinfo has no {key}")


def _flags(cpuinfo: str) -> str:
    match = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return match[1] if match else ""


def _words(host: Host, path: str) -> tuple[str, ...] | Unknown:
    text = reading.text(host, path)
    return text if isinstance(text, Unknown) else tuple(text.split())


def _first_text(host: Host, *paths: str) -> str | Unknown:
    found = [reading.text(host, path) for path in paths]
    return next((text for text in found if not isinstance(text, Unknown)), found[0])


def _policies(host: Host) -> tuple[Policy, ...] | Unknown:
    names = host.list(f"{CPU}/cpufreq")
    if isinstance(names, Unknown):
        return names
    found = []
    for name in sorted((n for n in names if re.fullmatch(r"policy\d+", n)), key=lambda n: int(n[6:])):
        base = f"{CPU}/cpufreq/{name}"
        found.append(
            Policy(
                path=base,
                driver=reading.text(host, f"{base}/scaling_driver"),
                governor=reading.text(host, f"{base}/scaling_governor"),
                governors=_words(host, f"{base}/scaling_available_governors"),
                epp=reading.text(host, f"{base}/energy_performance_preference"),
                epps=_words(host, f"{base}/energy_performance_available_preferences"),
                max_khz=reading.integer(host, f"{base}/scaling_max_freq"),
                min_khz=reading.integer(host, f"{base}/scaling_min_freq"),
                hardware_max_khz=reading.integer(host, f"{base}/cpuinfo_max_freq"),
                base_khz=reading.integer(host, f"{base}/base_frequency"),
                bios_limit_khz=reading.integer(host, f"{base}/bios_limit"),
                now_khz=reading.integer(host, f"{base}/scaling_cur_freq"),
            )
        )
    return tuple(found) or Unknown("the kernel runs no cpufreq driver here", absent=True)


def _boost(host: Host) -> tuple[str, bool | Unknown]:
    """Where boost is switched, and whether it is on."""
    no_turbo = reading.integer(host, f"{CPU}/intel_pstate/no_turbo")
    if not isinstance(no_turbo, Unknown):
        return f"{CPU}/intel_pstate/no_turbo", no_turbo == 0
    boost = reading.integer(host, f"{CPU}/cpufreq/boost")
    return f"{CPU}/cpufreq/boost", boost if isinstance(boost, Unknown) else boost == 1


def _idle_states(host: Host) -> tuple[IdleState, ...] | Unknown:
    names = host.list(f"{CPU}/cpu0/cpuidle")
    if isinstance(names, Unknown):
        return names
    found = []
    for name in sorted(n for n in names if n.startswith("state")):
        base = f"{CPU}/cpu0/cpuidle/{name}"
        latency, disabled = reading.integer(host, f"{base}/latency"), reading.integer(host, f"{base}/disable")
        label = reading.text(host, f"{base}/name")
        if isinstance(latency, Unknown) or isinstance(disabled, Unknown):
            continue
        found.append(
            IdleState(
                int(name[5:]),
                name if isinstance(label, Unknown) else label,
                latency,
                disabled != 0,
                reading.integer(host, f"{base}/usage"),
            )
        )
    return tuple(found)


def _latency(host: Host) -> int | Unknown:
    """The strictest request that processes hold: the device reads as one 32-bit number of microseconds."""
    data = host.read_bytes("/dev/cpu_dma_latency")
    if isinstance(data, Unknown):
        return data
    return struct.unpack("<i", data[:4])[0] if len(data) >= 4 else Unknown("/dev/cpu_dma_latency is empty")


def _uncore(host: Host) -> tuple[tuple[str, int, int, int], ...] | Unknown:
    names = host.list(f"{CPU}/intel_uncore_frequency")
    if isinstance(names, Unknown):
        return names
    found = []
    for name in names:
        base = f"{CPU}/intel_uncore_frequency/{name}"
        values = [
            reading.integer(host, f"{base}/{file}")
            for file in ("min_freq_khz", "max_freq_khz", "initial_min_freq_khz")
        ]
        known = [value for value in values if not isinstance(value, Unknown)]
        if len(known) == 3:
            found.append((base, known[0], known[1], known[2]))
    return tuple(found)


def _throttle_counts(host: Host) -> tuple[int, int] | Unknown:
    first = reading.integer(host, f"{CPU}/cpu0/thermal_throttle/core_throttle_count")
    if isinstance(first, Unknown):
        return first
    sums = []
    for kind in ("core", "package"):
        values = [
            reading.integer(host, path)
            for path in host.glob(f"{CPU}/cpu[0-9]*/thermal_throttle/{kind}_throttle_count")
        ]
        sums.append(sum(value for value in values if not isinstance(value, Unknown)))
    return sums[0], sums[1]


def _caps(host: Host) -> tuple[Cap, ...] | Unknown:
    names = host.list("/sys/class/powercap")
    if isinstance(names, Unknown):
        return names
    found = []
    for zone in (n for n in names if re.fullmatch(r"intel-rapl:\d+", n)):
        base = f"/sys/class/powercap/{zone}"
        for number in range(2):
            label = reading.text(host, f"{base}/constraint_{number}_name")
            limit = reading.integer(host, f"{base}/constraint_{number}_power_limit_uw")
            if not isinstance(label, Unknown) and not isinstance(limit, Unknown):
                most = reading.integer(host, f"{base}/constraint_{number}_max_power_uw")
                found.append(Cap(f"{base}/constraint_{number}_power_limit_uw", label, limit, most))
    return tuple(found)


def _node_cap(host: Host) -> tuple[tuple[str, int, int], ...]:
    found = []
    for path in host.glob("/sys/class/hwmon/hwmon*/power1_cap"):
        name = reading.text(host, f"{path.rpartition('/')[0]}/name")
        cap = reading.integer(host, path)
        alarm = reading.integer(host, f"{path}_alarm")
        if not isinstance(name, Unknown) and name == "power_meter" and not isinstance(cap, Unknown):
            found.append((path, cap, 0 if isinstance(alarm, Unknown) else alarm))
    return tuple(found)


def _count(host: Host) -> int | Unknown:
    cpus = reading.cpus(host, f"{CPU}/online")
    return cpus if isinstance(cpus, Unknown) else len(cpus)
