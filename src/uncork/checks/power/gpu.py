"""Power, clocks and temperature of GPUs."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    INFO,
    NONE,
    P0,
    P1,
    P2,
    RUNTIME,
    Verdict,
    check,
    fails,
    passes,
    unknown,
)
from uncork.checks.driver.modes import nvml_change
from uncork.checks.gpus import busy, each, gpus, subject_of
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown

# Bits of nvmlClocksEventReasons (nvml.h). Several may be set at once.
IDLE, APPLICATION, SW_POWER, HW_SLOWDOWN, SYNC_BOOST = 0x1, 0x2, 0x4, 0x8, 0x10
SW_THERMAL, HW_THERMAL, POWER_BRAKE, DISPLAY = 0x20, 0x40, 0x80, 0x100
_WORDS = {
    HW_SLOWDOWN: "hardware slowdown",
    SW_THERMAL: "thermal slowdown by the driver",
    HW_THERMAL: "thermal slowdown by the hardware",
    POWER_BRAKE: "power brake",
}
MARGIN_C = 5


@check("power.gpu-power-limit", P1, RUNTIME)
def power_limit(facts: Facts) -> Iterator[Verdict]:
    """The GPU may use the power it was made for.

    Effect: prefill and whatever else is bound by arithmetic scale with power; decoding loses little
    Sure: high
    Fix: nvidia-smi -pl with the default limit
    Undo: nvidia-smi -pl with the former limit
    Wrong when: somebody lowered it on purpose, for a supply or a circuit: ask first
    Source: NVML API reference, power management limit; Azure health checks
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        limit, default, subject = known(gpu.power_limit_mw), known(gpu.power_default_mw), subject_of(gpu)
        if limit < 0.99 * default:
            change = None
            if gpu.vendor == "nvidia":
                change = nvml_change(gpu, "power_limit_mw", str(default), str(limit))
            elif gpu.power_cap_path:
                change = Change("sysfs", gpu.power_cap_path, str(default * 1000), before=str(limit * 1000))
            words = f"{limit // 1000} W of {default // 1000} W"
            yield fails(f"limited to {words}", subject, change=change, evidence=seen("power limit", words))
        elif not is_unknown(gpu.power_enforced_mw) and gpu.power_enforced_mw < 0.99 * limit:
            words = f"{gpu.power_enforced_mw // 1000} W are enforced, {limit // 1000} W asked for"
            yield fails(words, subject, change_class=FIRMWARE, evidence=seen("enforced limit", words))
        else:
            yield passes(f"{limit // 1000} W, as shipped", subject)

    yield from each(gpus(facts), subject_of, judge)


@check("power.gpu-throttle-reasons", P0, FIRMWARE)
def throttle_reasons(facts: Facts) -> Iterator[Verdict]:
    """Under load no slowdown holds a GPU's clocks.

    Effect: a power brake takes clocks to about a quarter; heat takes 10 to 50 %
    Sure: high
    Fix: cooling, supply, BMC
    Undo: nothing to undo
    Wrong when: the software power cap at full load, which is how these cards run
    Source: nvml.h, nvmlClocksEventReasons; DCGM diagnostics; Azure health checks
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        mask, subject = known(gpu.event_reasons), subject_of(gpu)
        found = [word for bit, word in _WORDS.items() if mask & bit]
        shown = seen("clocks event reasons", f"{mask:#x}")
        # Hardware holds these three whatever the load; the driver's own thermal bit needs one.
        if mask & (POWER_BRAKE | HW_THERMAL | HW_SLOWDOWN) or (found and busy(gpu)):
            hard = mask & (POWER_BRAKE | HW_THERMAL | HW_SLOWDOWN)
            yield fails(", ".join(found), subject, priority=P0 if hard else P1, evidence=shown)
            return
        counters = {"heat": gpu.thermal_slowdown_ns, "the power brake": gpu.power_brake_ns}
        slowed = {what: ns for what, ns in counters.items() if not is_unknown(ns) and ns > 10**9}
        if slowed:
            what, ns = next(iter(slowed.items()))
            yield fails(
                f"{ns / 1e9:.0f} s slowed by {what} since the driver was loaded",
                subject,
                priority=P1,
                evidence=seen("violation time", ns),
            )
        elif busy(gpu):
            yield passes("no slowdown under load", subject)
        elif not any(is_unknown(ns) for ns in counters.values()):
            yield passes("no slowdown since the driver was loaded", subject)
        else:
            yield unknown("the GPU idles: only a reading under load tells", subject)

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


@check("power.gpu-temperature", P1, FIRMWARE)
def temperature(facts: Facts) -> Iterator[Verdict]:
    """GPU and memory stay below their limits.

    Effect: lower clocks
    Sure: high
    Fix: cooling, fans, dust, intake temperature
    Undo: nothing to undo
    Wrong when: read at rest, which says nothing about load
    Source: NVML API reference, temperature thresholds
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        subject, now = subject_of(gpu), known(gpu.temperature_c)
        margins = []
        if not is_unknown(gpu.temperature_margin_c):
            margins.append(gpu.temperature_margin_c)
        elif not is_unknown(gpu.slowdown_temperature_c):
            margins.append(gpu.slowdown_temperature_c - now)
        if not is_unknown(gpu.memory_temperature_c) and not is_unknown(gpu.memory_limit_temperature_c):
            margins.append(gpu.memory_limit_temperature_c - gpu.memory_temperature_c)
        if not margins:
            yield unknown(f"{now} C; no limit is told to compare it with", subject)
        elif min(margins) < MARGIN_C:
            yield fails(
                f"{now} C, {min(margins)} C below the limit", subject, evidence=seen("temperature", now)
            )
        else:
            yield passes(f"{now} C, {min(margins)} C below the limit", subject)

    yield from each(gpus(facts), subject_of, judge)


@check("power.gpu-clock-lock", P1, RUNTIME)
def clock_lock(facts: Facts) -> Iterator[Verdict]:
    """No locked or application clock was left behind.

    Effect: clocks below what the card would choose; health tests lock them and may leave them
    Sure: high
    Fix: nvidia-smi -rac, -rgc, -rmc
    Undo: a locked clock cannot be read on every driver: write down what it was
    Wrong when: a benchmark that wants fixed clocks
    Folklore: partly: locking to the highest clock rarely helps a card that is bound by power
    Source: NVML API reference, applications clocks and clocks event reasons; Azure health checks
    """
    stated = [line for line in facts.driver.words.splitlines() if "clock locked" in line.lower()]

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        subject = subject_of(gpu)
        if stated:
            yield fails("the clock is locked", subject, evidence=seen("as reported", stated[0]))
            return
        own, default = gpu.app_sm_clock_mhz, gpu.default_app_sm_clock_mhz
        if not is_unknown(own) and not is_unknown(default):
            if own < default:
                yield fails(
                    f"application clock {own} of {default} MHz",
                    subject,
                    change=_reset(gpu),
                    evidence=seen("applications clocks", own),
                )
                return
            yield passes("application clocks as shipped", subject)
            return
        if not busy(gpu):
            yield unknown("a locked clock shows only under load", subject)
        elif known(gpu.event_reasons) & APPLICATION:
            yield fails(
                "an application clock holds it",
                subject,
                evidence=seen("clocks event reasons", f"{known(gpu.event_reasons):#x}"),
            )
        else:
            yield passes("no clock setting holds it", subject)

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


def _reset(gpu: Gpu) -> Change | None:
    """Default application clocks, where all four are known: the knob's value is `MEMORY,SM`."""
    values = (
        gpu.default_app_memory_clock_mhz,
        gpu.default_app_sm_clock_mhz,
        gpu.app_memory_clock_mhz,
        gpu.app_sm_clock_mhz,
    )
    if any(is_unknown(value) for value in values):
        return None
    return nvml_change(gpu, "application_clocks_mhz", f"{values[0]},{values[1]}", f"{values[2]},{values[3]}")


@check("power.gpu-clock-under-load", P1, NONE)
def clock_under_load(facts: Facts) -> Iterator[Verdict]:
    """Under load the GPU reaches its clocks.

    Effect: shows slowdowns that nothing else names
    Sure: medium
    Fix: none: look for the reason
    Undo: nothing to undo
    Wrong when: the card is bound by power, or idles
    Source: NVML API reference, clock info
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        subject = subject_of(gpu)
        if not busy(gpu):
            yield unknown("the GPU idles: only a reading under load tells", subject)
            return
        sm, most = known(gpu.sm_clock_mhz), known(gpu.max_sm_clock_mhz)
        memory, memory_most = known(gpu.memory_clock_mhz), known(gpu.max_memory_clock_mhz)
        capped = not is_unknown(gpu.event_reasons) and bool(gpu.event_reasons & SW_POWER)
        words = f"{sm} of {most} MHz, memory {memory} of {memory_most} MHz"
        # GeForce and workstation cards compute in P2, a step below their highest memory clock; the highest SM
        # clock of the VBIOS is above what any card holds.
        if memory < 0.9 * memory_most:
            yield fails(words, subject, evidence=seen("clocks", words))
        elif sm < (0.4 if capped else 0.6) * most:
            yield fails(words, subject, priority=P2 if capped else P1, evidence=seen("clocks", words))
        else:
            yield passes(words, subject)

    yield from each(gpus(facts, "nvidia"), subject_of, judge)


@check("power.gpu-idle-p-state", INFO, RUNTIME)
def idle_pstate(facts: Facts) -> Iterator[Verdict]:
    """Which performance state the GPU rests in.

    Effect: the first request after a pause is slower; how much was not measured here
    Sure: low
    Fix: none planned
    Undo: nothing to undo
    Wrong when: always worth a doubt
    Folklore: partly
    Source: own reasoning
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        yield passes(f"performance state P{known(gpu.pstate)}", subject_of(gpu))

    yield from each(gpus(facts, "nvidia"), subject_of, judge)
