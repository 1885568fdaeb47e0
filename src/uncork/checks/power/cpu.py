"""Clocks, idle states and caps of the processors."""

from collections.abc import Callable, Iterator

from uncork.checks import (
    FIRMWARE,
    NONE,
    P1,
    P2,
    REBOOT,
    RUNTIME,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import each, evidence, known, lines, version
from uncork.checks.hosts import virtual
from uncork.model.facts import Facts
from uncork.model.facts.power import Cap, Policy
from uncork.model.findings import Change
from uncork.model.unknown import Unknown, is_unknown

# Drivers that choose the frequency themselves: their `powersave` follows the energy preference.
_EPP_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")
# Xeons whose C6 takes 150 to 230 us to leave: Sapphire Rapids, Emerald Rapids, Granite Rapids.
_SLOW_C6 = {143, 207, 173, 174}
# Wake-ups longer than this are seen in the time between tokens.
MAX_WAKE_US = 99


def _absent(facts: Facts, value: object) -> str:
    """Why a question about processor power does not arise, or an empty text."""
    if isinstance(value, Unknown) and value.absent:
        guest = not is_unknown(facts.container) and not is_unknown(facts.container.machine) and virtual(facts)
        return "a virtual machine: its host decides" if guest else value.reason
    return ""


def _policies(facts: Facts) -> tuple[Policy, ...]:
    return known(facts.power.policies)


def _name(policy: Policy) -> str:
    return policy.path.rpartition("/")[2]


def _odd(policies: tuple[Policy, ...], wrong: Callable[[Policy], bool]) -> tuple[list[Policy], Policy]:
    """The policies that are wrong, and one to show."""
    found = [policy for policy in policies if wrong(policy)]
    return found, (found or list(policies))[0]


@check("power.governor", P1, RUNTIME)
def governor(facts: Facts) -> Iterator[Verdict]:
    """The CPU frequency governor does not hold clocks down.

    Effect: latency of work that comes in bursts, such as the scheduler's between two steps; nothing at full load
    Sure: medium
    Fix: write performance to every policy's scaling_governor
    Undo: write the former governor (and energy preference) back
    Wrong when: powersave of intel_pstate or amd-pstate-epp, which is another thing than the old powersave
    Source: Linux Documentation/admin-guide/pm/{cpufreq,intel_pstate,amd-pstate}.rst; tuned, throughput-performance
    """
    if reason := _absent(facts, facts.power.policies):
        yield not_applicable(reason)
        return
    policies = _policies(facts)

    def slow(policy: Policy) -> bool:
        by_itself = known(policy.driver) in _EPP_DRIVERS
        return known(policy.governor) != "performance" and not (by_itself and policy.governor == "powersave")

    wrong, one = _odd(policies, slow)
    shown = evidence(f"{one.path}/scaling_governor", one.governor)
    if not wrong:
        yield passes(f"governor {one.governor} ({one.driver})", evidence=shown)
        return
    able = [p for p in wrong if is_unknown(p.governors) or "performance" in p.governors]
    changes = [Change("cpufreq_governor", _name(p), "performance", before=_before(p)) for p in able]
    mild = known(one.governor) in ("schedutil", "ondemand")
    words = f"governor {one.governor} on {len(wrong)} of {len(policies)} policies"
    yield fails(words, changes=changes, priority=P2 if mild else P1, evidence=shown)


def _before(policy: Policy) -> str:
    """The governor as its knob reads it: with the energy preference where that is free."""
    preference = "" if is_unknown(policy.epp) or not policy.epp else f" epp={policy.epp}"
    return known(policy.governor) + (preference if policy.governor != "performance" else "")


@check("power.scaling-driver", P2, REBOOT)
def scaling_driver(facts: Facts) -> Iterator[Verdict]:
    """Zen 3 and later let amd_pstate choose clocks.

    Effect: one report of +2 % on an EPYC 9654; with governor performance no gain for inference is shown
    Sure: low
    Fix: amd_pstate=active on the kernel command line; CPPC on in the BIOS
    Undo: the former command line
    Wrong when: servers whose vendor keeps acpi-cpufreq on purpose
    Folklore: partly
    Source: Linux Documentation/admin-guide/pm/amd-pstate.rst; Flatcar issue 1396
    """
    if reason := _absent(facts, facts.power.policies):
        yield not_applicable(reason)
        return
    one = _policies(facts)[0]
    if known(one.driver) != "acpi-cpufreq" or known(facts.power.cpu_vendor) != "AuthenticAMD":
        yield passes(f"scaling driver {one.driver}")
    elif not known(facts.power.cppc) or version(known(facts.kernel_version.release))[:2] < (6, 3):
        yield not_applicable("no CPPC in the processor's flags, or a kernel before 6.3")
    else:
        yield fails(
            "acpi-cpufreq drives a processor with CPPC",
            evidence=evidence(f"{one.path}/scaling_driver", one.driver),
        )


@check("power.epp", P2, RUNTIME)
def energy_preference(facts: Facts) -> Iterator[Verdict]:
    """The energy preference leans to performance.

    Effect: how fast clocks rise after a pause
    Sure: medium
    Fix: write performance to every policy's energy_performance_preference
    Undo: write the former preference
    Wrong when: governor performance, which fixes it
    Source: Linux Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst; tuned
    """
    if reason := _absent(facts, facts.power.policies):
        yield not_applicable(reason)
        return
    policies = _policies(facts)
    if reason := _absent(facts, policies[0].epp):
        yield not_applicable(f"this driver has no energy preference: {reason}")
        return
    wrong, one = _odd(
        policies,
        lambda p: known(p.epp) not in ("performance", "balance_performance") and p.governor != "performance",
    )
    shown = evidence(f"{one.path}/energy_performance_preference", one.epp)
    if not wrong:
        yield passes(f"energy preference {one.epp}", evidence=shown)
        return
    changes = [Change("cpufreq_epp", _name(p), "performance", before=known(p.epp)) for p in wrong]
    yield fails(f"energy preference {one.epp} on {len(wrong)} policies", changes=changes, evidence=shown)


@check("power.epb", P2, RUNTIME)
def energy_bias(facts: Facts) -> Iterator[Verdict]:
    """Intel's energy bias leans to performance.

    Effect: small
    Sure: low
    Fix: write 0 to energy_perf_bias of every CPU
    Undo: write the former number
    Wrong when: governor performance
    Folklore: partly
    Source: Linux Documentation/admin-guide/pm/intel_epb.rst; tuned
    """
    bias = facts.power.epb
    if reason := _absent(facts, bias):
        yield not_applicable(reason)
        return
    performing = not is_unknown(facts.power.policies) and all(
        not is_unknown(p.governor) and p.governor == "performance" for p in facts.power.policies
    )
    value = known(bias)
    if value <= 6 or performing:
        yield passes(f"energy bias {value}")
        return
    changes = [
        Change("sysfs", f"/sys/devices/system/cpu/cpu{cpu}/power/energy_perf_bias", "0", before=str(value))
        for cpu in range(known(facts.power.cpus))
    ]
    yield fails(
        f"energy bias {value} of 15", changes=changes, evidence=evidence("cpu0/power/energy_perf_bias", value)
    )


@check("power.boost", P1, RUNTIME)
def boost(facts: Facts) -> Iterator[Verdict]:
    """Boost is on.

    Effect: base and boost of server parts differ by 20 to 90 % of one thread's clock, and decoding waits for one
        thread of the host
    Sure: high
    Fix: write 1 to cpufreq/boost, or 0 to intel_pstate/no_turbo
    Undo: write the former value
    Wrong when: a thermal or power policy of the site
    Source: Linux Documentation/admin-guide/pm/cpufreq.rst, boost; intel_pstate.rst, no_turbo
    """
    on, path = facts.power.boost, facts.power.boost_path
    if reason := _absent(facts, on):
        yield not_applicable(reason)
        return
    if known(on):
        yield passes("boost is on")
        return
    want, before = ("0", "1") if path.endswith("no_turbo") else ("1", "0")
    yield fails(
        "boost is off", change=Change("sysfs", path, want, before=before), evidence=evidence(path, before)
    )


@check("power.freq-limits", P1, RUNTIME)
def limits(facts: Facts) -> Iterator[Verdict]:
    """Nothing holds the highest clock below the processor's own.

    Effect: in proportion
    Sure: high
    Fix: write cpuinfo_max_freq to scaling_max_freq; bios_limit is the firmware's
    Undo: write the former limit
    Wrong when: a power budget of the site
    Source: Linux Documentation/admin-guide/pm/cpufreq.rst; tuned
    """
    if reason := _absent(facts, facts.power.policies):
        yield not_applicable(reason)
        return
    policies = _policies(facts)
    wrong, one = _odd(policies, lambda p: known(p.max_khz) < 0.99 * known(p.hardware_max_khz))
    percent = facts.power.max_perf_pct
    if wrong:
        changes = [
            Change(
                "sysfs",
                f"{p.path}/scaling_max_freq",
                str(known(p.hardware_max_khz)),
                before=str(known(p.max_khz)),
            )
            for p in wrong
        ]
        words = f"clocks end at {known(one.max_khz) // 1000} of {known(one.hardware_max_khz) // 1000} MHz"
        yield fails(
            f"{words} on {len(wrong)} policies",
            changes=changes,
            evidence=evidence(f"{one.path}/scaling_max_freq", one.max_khz),
        )
    elif not is_unknown(percent) and percent < 100:
        path = "/sys/devices/system/cpu/intel_pstate/max_perf_pct"
        yield fails(
            f"max_perf_pct is {percent}",
            change=Change("sysfs", path, "100", before=str(percent)),
            evidence=evidence(path, percent),
        )
    else:
        bounded = [
            p
            for p in policies
            if not is_unknown(p.bios_limit_khz) and 0 < p.bios_limit_khz < 0.99 * known(p.hardware_max_khz)
        ]
        if bounded:
            words = f"firmware ends clocks at {known(bounded[0].bios_limit_khz) // 1000} MHz"
            yield fails(
                words, change_class=FIRMWARE, evidence=evidence("bios_limit", bounded[0].bios_limit_khz)
            )
        else:
            yield passes(f"clocks reach {known(one.hardware_max_khz) // 1000} MHz")


@check("power.actual-frequency", P1, NONE)
def actual(facts: Facts) -> Iterator[Verdict]:
    """CPUs of a busy server run above their base clock.

    Effect: tells whether a governor could matter at all
    Sure: medium
    Fix: none: look at throttling, caps and limits
    Undo: nothing to undo
    Wrong when: the server idles
    Source: own reasoning
    """
    if reason := _absent(facts, facts.power.policies):
        yield not_applicable(reason)
        return
    busy = {
        cpu
        for server in known(facts.engine.servers)
        for process in server.processes
        if not is_unknown(process.cpu_share)
        and process.cpu_share > 0.5
        and not is_unknown(process.cpus_allowed)
        for cpu in process.cpus_allowed
    }
    if not busy:
        yield unknown("no server is busy: the clock tells something only under load")
        return
    policies = _policies(facts)
    fastest = max(known(p.now_khz) for p in policies)
    base = policies[0].base_khz
    floor = known(base) if not is_unknown(base) else known(policies[0].hardware_max_khz) * 0.6
    words = f"the fastest core runs at {fastest // 1000} MHz"
    if fastest < floor:
        yield fails(f"{words} while a server is busy", evidence=evidence("scaling_cur_freq", fastest))
    else:
        yield passes(words)


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
    if reason := _absent(facts, states):
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
        evidence=evidence(f"cpu0/cpuidle/state{deepest.number}", f"{deepest.name} {deepest.latency_us} us"),
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
            evidence=evidence(_GOVERNOR, now),
        )
    elif not virtual(facts) and now == "ladder":
        yield fails(
            "idle governor ladder",
            change=Change("sysfs", _GOVERNOR, "menu", before=now),
            evidence=evidence(_GOVERNOR, now),
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
            evidence=evidence(path, now),
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
            yield fails(f"the uncore ends at {high // 1000} MHz", name, evidence=evidence(path, high))
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
    if reason := _absent(facts, counts):
        yield not_applicable(reason)
        return
    core, package = known(counts)
    if core or package:
        yield fails(
            f"{core} core and {package} package throttling events since boot",
            priority=P2,
            evidence=evidence("thermal_throttle", f"{core} {package}"),
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
    if reason := _absent(facts, caps):
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
                evidence=evidence(cap.path, cap.limit_uw),
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
                evidence=evidence(path, cap),
            )
        else:
            yield passes("no cap of the board")
