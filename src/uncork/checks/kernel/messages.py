"""What the kernel said or is being asked to say: hangs, kills, floods, traces, pressure."""

import re
from collections.abc import Iterator

from uncork.checks import (
    NONE,
    P1,
    P2,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
)
from uncork.checks.hosts import known, seen, serving, subject
from uncork.model.facts import Facts
from uncork.model.facts.container import Confined
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown

FLOOD_PER_S = 1.0


@check("kernel.hung-task", P1, NONE)
def hung_task(facts: Facts) -> Iterator[Verdict]:
    """No task has hung since boot.

    Effect: the server, or a thread it waits for, is stuck in an uninterruptible wait
    Sure: high
    Fix: the cause: the stack below the message names the file system, driver or lock
    Undo: nothing to undo
    Source: juicefs discussion 6147; Linux admin-guide/sysctl/kernel.rst, hung_task_timeout_secs
    """
    hung = facts.kernel.events.hung_tasks
    if hung:
        yield fails(f"{len(hung)} reports of hung tasks", evidence=seen("kernel log", hung[-1]))
    else:
        yield passes("no hung tasks", evidence=seen("kernel log", "no such line"))


def _grouped(facts: Facts) -> tuple[Confined, ...]:
    """Serving processes; the group whose files were attached where nothing can be seen to serve."""
    found = serving(facts)
    return known(facts.container.processes) if not found and is_unknown(facts.engine.servers) else found


@check("kernel.oom-killed", P1, SERVICE_RESTART)
def oom_killed(facts: Facts) -> Iterator[Verdict]:
    """Nothing was killed for want of memory.

    Effect: a worker vanishes, and the server hangs or restarts
    Sure: high
    Fix: a higher memory limit of the group, or less host memory for the server (swap space, offload, workers)
    Undo: the former limit
    Source: Linux admin-guide/cgroup-v2.rst, memory.events; Linux admin-guide/mm/concepts.rst, OOM killer
    """
    grouped = [
        (process, group.memory_events["oom_kill"])
        for process in _grouped(facts)
        if not is_unknown(process.cgroups)
        for group in process.cgroups[:1]
        if not is_unknown(group.memory_events) and group.memory_events.get("oom_kill", 0)
    ]
    for process, count in grouped:
        source = f"memory.events of {process.cgroup_path}"
        yield fails(
            f"{count} processes of its group were killed", subject(process), evidence=seen(source, count)
        )
    events = facts.kernel.events
    if is_unknown(events) and grouped:
        return
    kills = events.oom_kills
    recent = [line for line in kills if _since(line) >= _oldest_server(facts)]
    if recent:
        # Where nothing serves it was some other process, at some other time.
        priority = P1 if serving(facts) or is_unknown(facts.engine.servers) else P2
        says = f"{len(recent)} messages of the out-of-memory killer"
        yield fails(says, evidence=seen("kernel log", recent[-1]), priority=priority)
    elif not grouped:
        told = f"none since the server started, {len(kills)} before" if kills else "no such line"
        yield passes("nothing was killed for memory", evidence=seen("kernel log", told))


def _since(line: str) -> float:
    """Seconds since boot of a log line; the end of time where it tells none, so that it counts."""
    match = re.match(r"\[\s*(\d{1,10}\.\d+)\]", line)
    return float(match[1]) if match else float("inf")


def _oldest_server(facts: Facts) -> float:
    """Seconds from boot to the start of the first server, 0 where none is seen. USER_HZ is 100."""
    ticks = [process.start_ticks for process in serving(facts) if not is_unknown(process.start_ticks)]
    return min(ticks, default=0) / 100


@check("kernel.printk-flood", P2, RUNTIME)
def printk_flood(facts: Facts) -> Iterator[Verdict]:
    """The kernel is quiet.

    Effect: messages to a serial console stall CPUs while they are sent, 87 us a character at 115200 baud
        (arithmetic)
    Sure: medium
    Fix: the source of the messages; until then a lower console level (first figure of kernel.printk)
    Undo: write the former figures back
    Wrong when: the flood is the evidence: hide nothing, cure the source
    Source: Linux admin-guide/sysctl/kernel.rst, printk; Linux core-api/printk-basics.rst
    """
    events = facts.kernel.events
    rate, hidden = events.per_second, events.suppressed
    if rate is None and not hidden:
        yield not_applicable("the log carries no times to count by")
        return
    evidence = seen("kernel log", f"{rate or 0:.2f} messages/s after start-up, {hidden} suppressed")
    if (rate or 0) <= FLOOD_PER_S and hidden < 1000:
        yield passes("the kernel log is quiet", evidence=evidence)
        return
    words = facts.kernel_version.parameters
    levels = facts.kernel.sysctls["kernel.printk"]
    change = None
    if not is_unknown(words) and any(w.startswith("console=ttyS") for w in words) and not is_unknown(levels):
        first, *rest = levels.split() or [""]
        if first.isdecimal() and int(first) > 4:
            change = Change("sysctl", "kernel.printk", " ".join(["4", *rest]), before=levels)
    yield fails("the kernel log is flooded", evidence=evidence, change=change)


@check("kernel.tracing-left-on", P2, RUNTIME)
def tracing(facts: Facts) -> Iterator[Verdict]:
    """No kernel tracing was left switched on.

    Effect: the function tracer costs time in every kernel call
    Sure: high
    Fix: write nop to /sys/kernel/tracing/current_tracer and clear set_event; kernel.bpf_stats_enabled=0
    Undo: write the former values back
    Wrong when: somebody is tracing just now
    Source: Linux trace/ftrace.rst; Linux admin-guide/sysctl/kernel.rst, bpf_stats_enabled
    """
    tracer, events = facts.kernel.tracer, facts.kernel.trace_events
    stats = facts.kernel.sysctls["kernel.bpf_stats_enabled"]
    changes = []
    left = []
    if not is_unknown(tracer) and tracer != "nop":
        left.append(f"tracer {tracer}")
        changes.append(Change("sysfs", "/sys/kernel/tracing/current_tracer", "nop", before=tracer))
    if not is_unknown(events) and events:
        left.append(f"{len(events.split())} events")
    if not is_unknown(stats) and stats == "1":
        left.append("BPF statistics")
        changes.append(Change("sysctl", "kernel.bpf_stats_enabled", "0", before="1"))
    if left:
        yield fails(
            f"tracing is on: {', '.join(left)}",
            evidence=seen("/sys/kernel/tracing", ", ".join(left)),
            changes=changes,
        )
    elif is_unknown(tracer) and tracer.absent and not is_unknown(stats):
        yield passes("no kernel tracing", evidence=seen("/proc/sys/kernel/bpf_stats_enabled", stats))
    else:
        yield passes("no kernel tracing", evidence=seen("/sys/kernel/tracing/current_tracer", known(tracer)))


@check("kernel.audit-syscall-rules", P2, RUNTIME)
def audit_rules(facts: Facts) -> Iterator[Verdict]:
    """System calls are not audited wholesale.

    Effect: a cost on every system call of a Python server
    Sure: low
    Fix: narrower rules, by the owner of the policy
    Undo: the former rules
    Wrong when: compliance asks for it: report, do not plan
    Source: auditctl(8)
    """
    rules = facts.kernel.audit_rules
    events = facts.kernel.events
    lost = () if is_unknown(events) else events.audit_lost
    if is_unknown(rules) and rules.absent and not lost:
        yield not_applicable("no audit rules are installed")
        return
    broad = [] if is_unknown(rules) else [rule for rule in rules if "-S all" in rule and "exit" in rule]
    if broad:
        yield fails("every system call is audited", evidence=seen("/etc/audit/rules.d", broad[0]))
    elif lost:
        yield fails("the audit system loses records", evidence=seen("kernel log", lost[-1]))
    else:
        yield passes(
            "no audit rule for all system calls", evidence=seen("/etc/audit/rules.d", f"{len(rules)} rules")
        )


@check("kernel.psi", P1, NONE)
def pressure(facts: Facts) -> Iterator[Verdict]:
    """Tasks do not wait for memory, disks or CPUs.

    Effect: a symptom: it points to memory, I/O or CPU as the cause of stalls
    Sure: high
    Fix: the cause: limits of the group, neighbours, a download
    Undo: nothing to undo
    Wrong when: a model is being loaded (I/O), or nothing serves (then it is P2)
    Source: Linux accounting/psi.rst
    """
    table = facts.kernel.pressure
    if all(is_unknown(value) and value.absent for value in table.values()):
        yield not_applicable("this kernel does not account pressure (psi=0)")
        return
    # A short read cannot tell load from rest: rules of the minute average, CPU only where something serves.
    rules = (("memory", "full", "avg60", 0.1), ("io", "full", "avg60", 5.0), ("cpu", "some", "avg60", 10.0))
    busy = bool(serving(facts))
    for name, kind, window, limit in rules:
        if name == "cpu" and not busy:
            continue
        value = table[name].get(kind, {}).get(window, 0.0)
        evidence = seen(f"/proc/pressure/{name}", f"{kind} {window}={value}")
        if value >= limit:
            says = f"tasks wait for {name} {value:g} % of the time"
            yield fails(says, name, evidence=evidence, priority=P1 if busy else P2)
        else:
            yield passes(f"no {name} pressure", name, evidence=evidence)
