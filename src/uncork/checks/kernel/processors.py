"""CPUs, clocks and interrupts."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    HOST_ONLY,
    INFO,
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
from uncork.checks.hosts import identity, known, no_process, seen, serving, subject, virtual
from uncork.model.facts import Facts
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown
from uncork.parsers import cpulist

_CPU = "/sys/devices/system/cpu"
_CLOCK = "/sys/devices/system/clocksource/clocksource0"
# What a guest may keep time with: each is read without leaving the guest (Linux virt/kvm/x86/timekeeping.rst).
_GUEST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "xen", "arch_sys_counter")


@check("kernel.clocksource", P1, RUNTIME)
def clocksource(facts: Facts) -> Iterator[Verdict]:
    """Time is read from the processor, not from a chip.

    Effect: hpet and acpi_pm make each clock read a slow access, and Python servers read clocks a lot; one later
        report saw no cost on an A100 node
    Sure: medium
    Fix: write tsc to current_clocksource where the kernel still lists it; where it marked the TSC unstable the
        cause is firmware, the board or the hypervisor
    Undo: write the former name back
    Wrong when: the TSC was marked unstable for a reason (sockets out of step): never force tsc=reliable blindly
    Source: madgraph5/madgraph4gpu issue 116; Linux admin-guide/kernel-parameters.txt, tsc= and clocksource=
    """
    events = facts.kernel.events
    unstable = () if is_unknown(events) else events.clock_unstable
    now, listed = facts.kernel.clocksource, facts.kernel.clocksources
    machine = facts.container.machine
    guest = not is_unknown(machine) and machine is not None
    beyond = HOST_ONLY if guest else FIRMWARE
    if is_unknown(now):
        if unstable:
            says = "the kernel marked the TSC unstable and fell back to a slower clock"
            yield fails(says, evidence=seen("kernel log", unstable[-1]), change_class=beyond)
        elif not is_unknown(listed) and not set(listed) & set(_GUEST_CLOCKS):
            says = f"only {', '.join(listed)} can be chosen"
            yield fails(says, evidence=seen(f"{_CLOCK}/available_clocksource", listed), change_class=beyond)
        else:
            bool(now)
        return
    evidence = seen(f"{_CLOCK}/current_clocksource", now)
    if now in ("tsc", "arch_sys_counter") or (now in _GUEST_CLOCKS and virtual(facts)):
        yield passes(f"clock source {now}", evidence=evidence)
    elif not unstable and not is_unknown(listed) and "tsc" in listed:
        change = Change("sysfs", f"{_CLOCK}/current_clocksource", "tsc", before=now)
        yield fails(f"clock source {now} although tsc is available", evidence=evidence, change=change)
    else:
        evidence += seen("kernel log", unstable[-1]) if unstable else ()
        yield fails(f"clock source {now}; tsc is not available", evidence=evidence, change_class=beyond)


@check("kernel.isolated-cpus", P1, RUNTIME)
def isolated_cpus(facts: Facts) -> Iterator[Verdict]:
    """No server is confined to isolated CPUs.

    Effect: the scheduler balances nothing there: all threads of a process stay on one core
    Sure: high
    Fix: move the process to the other CPUs (sched_setaffinity for every thread), or pin each thread by hand
    Undo: restore the former masks
    Wrong when: every thread is pinned to its own CPU on purpose
    Folklore: partly: isolcpus is rarely of use to Python servers
    Source: Linux admin-guide/kernel-parameters.txt, isolcpus= and nohz_full=
    """
    isolated = facts.kernel.cpus_isolated
    if not isolated:
        yield not_applicable("no CPU is isolated")
        return
    if reason := no_process(facts):
        yield not_applicable(reason)
        return
    left = cpulist.render(set(facts.kernel.cpus_online) - set(isolated))
    for process in serving(facts):
        mask = set(process.cpus_allowed)
        evidence = seen(f"/proc/{process.pid}/status", f"runs on {cpulist.render(mask)}")
        if len(mask) > 1 and mask <= set(isolated):
            change = Change("affinity", identity(process), left, before=cpulist.render(mask))
            yield fails("all its CPUs are isolated", subject(process), evidence=evidence, change=change)
        else:
            yield passes("not confined to isolated CPUs", subject(process), evidence=evidence)


@check("kernel.cpu-offline", P2, RUNTIME)
def cpu_offline(facts: Facts) -> Iterator[Verdict]:
    """Every CPU that is there is in use.

    Effect: less CPU for the server, and ragged affinity masks
    Sure: high
    Fix: echo 1 to /sys/devices/system/cpu/cpuN/online
    Undo: echo 0
    Wrong when: the operator took out a faulty core, or threads are switched off as a whole
    Source: Linux core-api/cpu_hotplug.rst
    """
    smt = facts.kernel.smt
    if not is_unknown(smt) and smt in ("off", "forceoff"):
        yield not_applicable("hardware threads are switched off as a whole (smt control)")
        return
    present = known(facts.kernel.cpus_present)
    missing = sorted(set(present) - set(known(facts.kernel.cpus_online)))
    evidence = seen(f"{_CPU}/online", cpulist.render(facts.kernel.cpus_online))
    if not missing:
        yield passes("all CPUs are online", evidence=evidence)
        return
    says = f"CPU {cpulist.render(missing)} is offline"
    if len(present) >= 255 and _not_addressed(facts):
        # The write would be refused: the processor has no address (uefi.x2apic).
        yield fails(says, evidence=evidence, change_class=FIRMWARE)
    else:
        changes = [Change("sysfs", f"{_CPU}/cpu{cpu}/online", "1", before="0") for cpu in missing]
        yield fails(says, evidence=evidence, changes=changes)


def _not_addressed(facts: Facts) -> bool:
    """Whether the log or the command line says that APIC ids above eight bits are not used."""
    events, words = facts.kernel.events, facts.kernel_version.parameters
    refused = not is_unknown(events) and bool(events.apic)
    off = ("nox2apic", "intremap=off", "iommu=off", "amd_iommu=off")
    return refused or (not is_unknown(words) and any(word in off for word in words))


@check("kernel.irqbalance", INFO, RUNTIME)
def irqbalance(facts: Facts) -> Iterator[Verdict]:
    """Who spreads interrupts: a fact.

    Effect: a GPU's completions are mostly polled; no gain from moving vectors is proven
    Sure: low
    Fix: leave it running unless a storm of one vector lands on a pinned core; then use its ban list
    Undo: nothing to undo
    Folklore: partly: "stop irqbalance" comes from network tuning
    Source: mlnx_tune; irqbalance(1)
    """
    running = "irqbalance" in facts.kernel.programs
    says = "irqbalance spreads interrupts" if running else "no irqbalance: the kernel's own spreading holds"
    yield passes(says, evidence=seen("/proc/*/cmdline", "irqbalance" if running else "no irqbalance"))


@check("kernel.split-lock", P2, RUNTIME)
def split_lock(facts: Facts) -> Iterator[Verdict]:
    """No server is slowed for locks that straddle cache lines.

    Effect: each hit costs the process 10 ms and holds others up
    Sure: medium
    Fix: sysctl kernel.split_lock_mitigate=0, only where a server is hit
    Undo: write the former value back
    Wrong when: the host is shared: the penalty protects the neighbours
    Source: Linux admin-guide/sysctl/kernel.rst, split_lock_mitigate
    """
    now = facts.kernel.sysctls["kernel.split_lock_mitigate"]
    if is_unknown(now) and now.absent:
        yield not_applicable("this kernel or processor detects no split locks")
        return
    names = {str(process.name) for process in serving(facts)} | {"python", "python3"}
    hits = [line for line in facts.kernel.events.split_locks if any(f" {name}/" in line for name in names)]
    if hits:
        change = None
        if not is_unknown(now) and now == "1":
            change = Change("sysctl", "kernel.split_lock_mitigate", "0", before="1")
        yield fails(
            f"{len(hits)} split locks of servers were punished",
            evidence=seen("kernel log", hits[-1]),
            change=change,
        )
    else:
        yield passes("no split locks of servers", evidence=seen("kernel log", "no such line"))


@check("kernel.mitigations", INFO, NONE)
def mitigations(facts: Facts) -> Iterator[Verdict]:
    """Processor vulnerabilities have their mitigation and its microcode.

    Effect: a few per cent on paths with many system calls, about nothing where the GPU is the limit
    Sure: low
    Fix: the microcode package; never mitigations=off
    Undo: nothing to undo
    Folklore: yes: switching mitigations off is not a plan
    Source: Linux admin-guide/hw-vuln/index.rst
    """
    gaps = {
        name: text
        for name, text in facts.kernel.vulnerabilities.items()
        if "no microcode" in text.lower() or text.lower() == "vulnerable"
    }
    if gaps:
        text = "; ".join(f"{name}: {said}" for name, said in sorted(gaps.items()))
        yield fails(
            f"{len(gaps)} vulnerabilities have no mitigation", evidence=seen(f"{_CPU}/vulnerabilities", text)
        )
    else:
        yield passes("mitigations in place", evidence=seen(f"{_CPU}/vulnerabilities", "none is bare"))


@check("kernel.init-on-alloc", P2, REBOOT)
def init_on_alloc(facts: Facts) -> Iterator[Verdict]:
    """Pages are not zeroed twice where memory is allocated in bulk.

    Effect: allocation-heavy paths only (loading, CPU offload); no measurement with serving exists
    Sure: low
    Fix: init_on_alloc=0 on the kernel command line, if the owner of the hardening agrees
    Undo: remove the parameter
    Wrong when: the host is hardened on purpose; Ubuntu's default is on
    Folklore: partly
    Source: NVIDIA Grace performance tuning guide; Linux admin-guide/kernel-parameters.txt, init_on_alloc=
    """
    words = facts.kernel_version.parameters
    config = facts.kernel_version.config
    events = facts.kernel.events
    said = "" if is_unknown(events) or not events.zeroing else events.zeroing[-1]
    on = "init_on_alloc=1" in words or (
        "init_on_alloc=0" not in words
        and (("heap alloc:on" in said) if said else config.get("INIT_ON_ALLOC_DEFAULT_ON") == "y")
    )
    evidence = seen(
        "kernel command line, log or configuration", said or f"init_on_alloc {'on' if on else 'off'}"
    )
    offloading = [
        f"{server.kind} --{flag}"
        for server in facts.engine.servers
        for flag in ("cpu-offload-gb", "kv-offloading-size", "enable-hierarchical-cache", "cpu-offload")
        if server.flags.get(flag, "0") not in ("0", "")
    ]
    if on and offloading:
        yield fails(
            f"pages are zeroed on allocation, and {offloading[0]} allocates in bulk", evidence=evidence
        )
    else:
        yield passes(f"zeroing on allocation is {'on (a fact)' if on else 'off'}", evidence=evidence)


@check("kernel.legacy-sched-knobs", INFO, NONE)
def legacy_scheduler(facts: Facts) -> Iterator[Verdict]:
    """Scheduler settings that this kernel no longer has are not missed.

    Effect: none: guides still name them, and a profile that checks them fails
    Sure: high
    Fix: none
    Undo: nothing to undo
    Folklore: yes: stale advice (moved to debugfs in 5.13, replaced by EEVDF in 6.6)
    Source: linux-system-roles/kernel_settings issue 60; Linux scheduler/sched-eevdf.rst
    """
    names = ("sched_min_granularity_ns", "sched_wakeup_granularity_ns", "sched_migration_cost_ns")
    values = {name: facts.kernel.sysctls[f"kernel.{name}"] for name in names}
    unread = [value for value in values.values() if is_unknown(value) and not value.absent]
    if unread:
        yield unknown(unread[0].reason)
        return
    there = [name for name, value in values.items() if not is_unknown(value)]
    says = f"old scheduler settings exist: {', '.join(there)}" if there else "old scheduler settings are gone"
    yield passes(says, evidence=seen("/proc/sys/kernel", ", ".join(there) or "none of sched_*_ns"))
