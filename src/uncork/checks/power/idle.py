"""Idle states, uncore, throttling and caps of the processors."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    P1,
    P2,
    RUNTIME,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
)
from uncork.checks.gpus import each, lines
from uncork.checks.hosts import known, seen, virtual
from uncork.checks.power.cpu import absent
from uncork.model.facts import Facts
from uncork.model.facts.power import Cap
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown

# Xeons whose C6 takes 150 to 230 us to leave: Sapphire Rapids, Emerald Rapids, Granite Rapids.
_SLOW_C6 = {143, 207, 173, 174}


# Wake-ups longer than this are seen in the time between tokens.
MAX_WAKE_US = 99


@check("power.c-state-latency", P1, RUNTIME)
def idle_states(facts: Facts) -> Iterator[Verdict]:
    """No idle state takes long to leave while a server serves.

    Effect: 150 to 230 us to leave C6 on Sapphire, Emerald and Granite Rapids; 5 to 15 us on EPYC, whatever the
        kernel says; nothing at high load
    Sure: medium
    Fix: hold /dev/cpu_dma_latency open with 50 (the request ends with its holder)
    Undo: close it
    Wrong when: busy cores lose boost because the idle ones do not sleep; throughput matters, not the first token
    Folklore: partly: idle=poll, max_cstate=0 and C-states off in the BIOS go too far and cost boost
    Source: Linux Documentation/admin-guide/pm/cpuidle.rst; gVisor pull request 14526; Firecracker 5671; tuned
    """
    states = facts.power.idle_states
    if reason := absent(facts, states):
        yield not_applicable(reason)
        return
    request = facts.power.latency_us
    if not is_unknown(request) and 0 <= request <= MAX_WAKE_US:
        yield passes(f"a process holds wake-ups to {request} us")
        return
    slow = [state for state in known(states) if state.latency_us > MAX_WAKE_US and not state.disabled]
    if not slow:
        yield passes("no idle state takes longer than 99 us to leave")
        return
    deepest = slow[-1]
    intel = (
        known(facts.power.cpu_vendor) == "GenuineIntel"
        and not is_unknown(facts.power.cpu_model)
        and facts.power.cpu_model in _SLOW_C6
    )
    change = Change("pm_qos", "cpu_dma_latency", "50", before="none")
    yield fails(
        f"{deepest.name} takes {deepest.latency_us} us to leave, and nobody asks for less",
        change=change,
        priority=P1 if intel else P2,
        evidence=seen(f"cpu0/cpuidle/state{deepest.number}", f"{deepest.name} {deepest.latency_us} us"),
    )


_GOVERNOR = "/sys/devices/system/cpu/cpuidle/current_governor"


@check("power.idle-driver", P2, RUNTIME)
def idle_driver(facts: Facts) -> Iterator[Verdict]:
    """The idle governor fits the machine.

    Effect: wake-up time of a guest
    Sure: low
    Fix: write haltpoll (guest) or menu (host) to cpuidle/current_governor
    Undo: write the former name
    Wrong when: a guest whose host polls for it already
    Folklore: partly
    Source: Linux Documentation/admin-guide/pm/cpuidle.rst; Documentation/virt/guest-halt-polling.rst
    """
    driver = facts.power.idle_driver
    if (is_unknown(driver) and driver.absent) or driver == "none":
        yield not_applicable("no idle driver: the hypervisor idles this machine")
        return
    now, offered = known(facts.power.idle_governor), facts.power.idle_governors
    if virtual(facts) and not is_unknown(offered) and "haltpoll" in offered and now != "haltpoll":
        yield fails(
            f"a guest with idle governor {now}, and haltpoll is offered",
            change=Change("sysfs", _GOVERNOR, "haltpoll", before=now),
            evidence=seen(_GOVERNOR, now),
        )
    elif not virtual(facts) and now == "ladder":
        yield fails(
            "idle governor ladder",
            change=Change("sysfs", _GOVERNOR, "menu", before=now),
            evidence=seen(_GOVERNOR, now),
        )
    else:
        yield passes(f"idle driver {driver}, governor {now}")


@check("power.platform-profile", P2, RUNTIME)
def profile(facts: Facts) -> Iterator[Verdict]:
    """The platform's profile is performance.

    Effect: caps power of processor and GPU on workstations
    Sure: medium
    Fix: write performance to /sys/firmware/acpi/platform_profile
    Undo: write the former profile
    Wrong when: noise matters more
    Source: Linux Documentation/ABI/testing/sysfs-platform_profile; tuned
    """
    path, now = "/sys/firmware/acpi/platform_profile", facts.power.platform_profile
    if is_unknown(now) and now.absent:
        yield not_applicable("the firmware has no platform profile")
    elif known(now) == "performance" or "performance" not in known(facts.power.platform_profiles):
        yield passes(f"platform profile {now}")
    else:
        yield fails(
            f"platform profile {now}",
            change=Change("sysfs", path, "performance", before=known(now)),
            evidence=seen(path, now),
        )


@check("power.uncore-min", P2, RUNTIME)
def uncore(facts: Facts) -> Iterator[Verdict]:
    """Intel's uncore may slow down only as far as shipped.

    Effect: latency of copies to the GPU that come in bursts
    Sure: low
    Fix: write max_freq_khz to min_freq_khz, measured before and after
    Undo: write initial_min_freq_khz
    Wrong when: power matters
    Folklore: partly: not measured for serving
    Source: Linux Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst
    """
    dies = facts.power.uncore
    if is_unknown(dies) and dies.absent:
        yield not_applicable("no control of an uncore frequency")
        return
    for path, low, high, initial in known(dies):
        name = path.rpartition("/")[2]
        if high < initial:
            yield fails(f"the uncore ends at {high // 1000} MHz", name, evidence=seen(path, high))
        else:
            yield passes(f"{low // 1000} to {high // 1000} MHz", name)


@check("power.cpu-throttle", P1, FIRMWARE)
def throttle(facts: Facts) -> Iterator[Verdict]:
    """The processors were not throttled.

    Effect: lower clocks
    Sure: high
    Fix: cooling, or the power limit in the firmware
    Undo: nothing to undo
    Wrong when: the count is from a stress test
    Source: Linux arch/x86/kernel/cpu/mce/therm_throt.c; hwmon
    """
    log = {} if is_unknown(facts.driver) or is_unknown(facts.driver.log) else facts.driver.log
    if log.get("throttled"):
        yield fails("the kernel log tells of throttling", evidence=lines("dmesg", log["throttled"]))
        return
    counts = facts.power.throttle_counts
    if reason := absent(facts, counts):
        yield not_applicable(reason)
        return
    core, package = known(counts)
    if core or package:
        yield fails(
            f"{core} core and {package} package throttling events since boot",
            priority=P2,
            evidence=seen("thermal_throttle", f"{core} {package}"),
        )
    else:
        yield passes("no throttling since boot")


@check("power.rapl-cap", P2, RUNTIME)
def rapl(facts: Facts) -> Iterator[Verdict]:
    """No package power cap lies below the processor's own.

    Effect: clocks of the processor
    Sure: medium
    Fix: write the default to the constraint
    Undo: write the former limit
    Wrong when: a dense host's power budget
    Source: Linux Documentation/power/powercap/powercap.rst
    """
    caps = facts.power.caps
    if reason := absent(facts, caps):
        yield not_applicable(reason)
        return

    def judge(cap: Cap) -> Iterator[Verdict]:
        subject = cap.path.split("/")[-2]
        if not is_unknown(cap.max_uw) and 0 < cap.limit_uw < 0.95 * cap.max_uw:
            change = Change("sysfs", cap.path, str(cap.max_uw), before=str(cap.limit_uw))
            words = f"{cap.limit_uw // 10**6} W of {cap.max_uw // 10**6} W"
            yield fails(
                f"the package may use {words}",
                subject,
                change=change,
                evidence=seen(cap.path, cap.limit_uw),
            )
        else:
            yield passes(f"{cap.limit_uw // 10**6} W", subject)

    yield from each((c for c in known(caps) if c.name == "long_term"), lambda c: c.path.split("/")[-2], judge)


@check("power.psu-bmc", P1, FIRMWARE)
def node_cap(facts: Facts) -> Iterator[Verdict]:
    """No power cap of the whole node is in force.

    Effect: the board brakes processors and GPUs
    Sure: medium
    Fix: the BMC's power policy
    Undo: the former policy
    Wrong when: a rack's budget
    Source: Linux Documentation/hwmon/acpi_power_meter.rst
    """
    meters = facts.power.node_cap
    if not meters:
        yield not_applicable("no power meter of the board is readable here (the BMC may still cap)")
        return
    for path, cap, alarm in meters:
        if alarm or cap:
            yield fails(
                f"the board is capped at {cap // 10**6} W" + (", and the cap is hit" if alarm else ""),
                evidence=seen(path, cap),
            )
        else:
            yield passes("no cap of the board")
