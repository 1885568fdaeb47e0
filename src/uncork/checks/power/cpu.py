"""Frequencies of the processors."""

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
from uncork.checks.gpus import version
from uncork.checks.hosts import known, seen, virtual
from uncork.model.facts import Facts
from uncork.model.facts.power import Policy
from uncork.model.findings import Change
from uncork.model.unknown import Unknown, is_unknown

# Drivers that choose the frequency themselves: their `powersave` follows the energy preference.
_EPP_DRIVERS = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")


def absent(facts: Facts, value: object) -> str:
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
    if reason := absent(facts, facts.power.policies):
        yield not_applicable(reason)
        return
    policies = _policies(facts)

    def slow(policy: Policy) -> bool:
        by_itself = known(policy.driver) in _EPP_DRIVERS
        return known(policy.governor) != "performance" and not (by_itself and policy.governor == "powersave")

    wrong, one = _odd(policies, slow)
    shown = seen(f"{one.path}/scaling_governor", one.governor)
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
    if reason := absent(facts, facts.power.policies):
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
            evidence=seen(f"{one.path}/scaling_driver", one.driver),
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
    if reason := absent(facts, facts.power.policies):
        yield not_applicable(reason)
        return
    policies = _policies(facts)
    if reason := absent(facts, policies[0].epp):
        yield not_applicable(f"this driver has no energy preference: {reason}")
        return
    wrong, one = _odd(
        policies,
        lambda p: known(p.epp) not in ("performance", "balance_performance") and p.governor != "performance",
    )
    shown = seen(f"{one.path}/energy_performance_preference", one.epp)
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
    if reason := absent(facts, bias):
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
        f"energy bias {value} of 15", changes=changes, evidence=seen("cpu0/power/energy_perf_bias", value)
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
    if reason := absent(facts, on):
        yield not_applicable(reason)
        return
    if known(on):
        yield passes("boost is on")
        return
    want, before = ("0", "1") if path.endswith("no_turbo") else ("1", "0")
    yield fails(
        "boost is off", change=Change("sysfs", path, want, before=before), evidence=seen(path, before)
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
    if reason := absent(facts, facts.power.policies):
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
            evidence=seen(f"{one.path}/scaling_max_freq", one.max_khz),
        )
    elif not is_unknown(percent) and percent < 100:
        path = "/sys/devices/system/cpu/intel_pstate/max_perf_pct"
        yield fails(
            f"max_perf_pct is {percent}",
            change=Change("sysfs", path, "100", before=str(percent)),
            evidence=seen(path, percent),
        )
    else:
        yield _by_firmware(policies)


def _by_firmware(policies: tuple[Policy, ...]) -> Verdict:
    """Whether the firmware ends clocks early."""
    for policy in policies:
        limit, most = policy.bios_limit_khz, known(policy.hardware_max_khz)
        if not is_unknown(limit) and 0 < limit < 0.99 * most:
            words = f"firmware ends clocks at {limit // 1000} MHz"
            return fails(words, change_class=FIRMWARE, evidence=seen("bios_limit", limit))
    return passes(f"clocks reach {known(policies[0].hardware_max_khz) // 1000} MHz")


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
    if reason := absent(facts, facts.power.policies):
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
        yield fails(f"{words} while a server is busy", evidence=seen("scaling_cur_freq", fastest))
    else:
        yield passes(words)
