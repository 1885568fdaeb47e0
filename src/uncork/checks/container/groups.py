"""Limits of the control groups that servers live in."""

from collections.abc import Iterator

from uncork.checks import P0, P1, P2, RUNTIME, Verdict, check, fails, not_applicable, passes, unknown
from uncork.checks.gpus import lines
from uncork.checks.hosts import known, moved, no_process, one_node, seen, serving, sizes, subject
from uncork.model.facts import Facts
from uncork.model.facts.container import Cgroup, Confined
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown
from uncork.parsers import cpulist

# Below this share of periods throttling is a start-up burst.
THROTTLED = 0.01


def _asked(facts: Facts) -> tuple[Confined, ...]:
    """Serving processes, one a control group; this shell's group where nothing can be seen to serve."""
    servers = serving(facts)
    if not servers and not is_unknown(facts.engine.servers) and not facts.engine.servers:
        return ()
    groups: dict[str, Confined] = {}
    for process in servers or facts.container.processes:
        groups.setdefault("" if is_unknown(process.cgroup_path) else process.cgroup_path, process)
    return tuple(groups.values())


def _file(group: Cgroup, name: str) -> str:
    return f"/sys/fs/cgroup{group.path.rstrip('/')}/{name}"


def _write(group: Cgroup, name: str, want: str, before: str | None = None) -> Change | None:
    """A write to a group; none where its owner would write again (Kubernetes), nor to the root group."""
    if not group.unified or group.path in ("/", "") or "kubepods" in group.path:
        return None
    return Change("cgroup", _file(group, name), want, before=before)


def _gpus(facts: Facts) -> int:
    gpus = facts.driver.gpus
    if not is_unknown(gpus) and gpus:
        return len(gpus)
    count = facts.container.gpu_functions
    return 0 if is_unknown(count) else count


@check("container.cpu-quota-throttling", P0, RUNTIME)
def cpu_quota(facts: Facts) -> Iterator[Verdict]:
    """No CPU quota throttles a server.

    Effect: inter-token latency from 7-9 to 68-93 ms with the GPU at about 10 % (vLLM issue 49460): thread pools
        are sized by the host's CPUs and the whole group is stopped
    Sure: high
    Fix: no limit (docker update --cpus 0; systemctl set-property --runtime UNIT CPUQuota=), or a cpuset; in
        Kubernetes change the pod, which writes its own value back
    Undo: write the former quota back
    Wrong when: the quota is never reached: nr_throttled stands still under load
    Source: vllm-project/vllm issue 49460; sgl-project/sglang issue 32084; Linux admin-guide/cgroup-v2.rst, cpu.max
    """
    said = facts.container.said
    if said.cpu_limit is not None and not serving(facts):
        yield from _quota_said(facts, said.cpu_limit)
        return
    asked = _asked(facts)
    if not asked:
        yield not_applicable("no inference server runs here")
        return
    for process in asked:
        limited = [
            g for g in known(process.cgroups) if not is_unknown(g.cpu_quota) and g.cpu_quota is not None
        ]
        if limited:
            yield _quota(facts, process, min(limited, key=lambda group: known(group.cpu_quota) or 0))
        elif all(
            is_unknown(group.cpu_quota) and not group.cpu_quota.absent for group in known(process.cgroups)
        ):
            if share := _throttled_anyway(process):
                says = f"a quota throttles it in {share:.0%} of the periods"
                yield fails(says, subject(process), evidence=seen("cpu.stat", says))
            else:
                yield unknown("cpu.max cannot be read", subject(process))
        else:
            yield passes(
                "no CPU quota", subject(process), evidence=seen(_file(process.cgroups[0], "cpu.max"), "max")
            )


def _throttled_anyway(process: Confined) -> float:
    """The share of periods that were throttled where cpu.max was not given; 0 where it is small or not told."""
    shares = [
        group.throttled.after / group.periods.after
        for group in known(process.cgroups)
        if not is_unknown(group.periods) and not is_unknown(group.throttled) and group.periods.after
    ]
    return max((share for share in shares if share >= 0.05), default=0.0)


def _quota(facts: Facts, process: Confined, group: Cgroup) -> Verdict:
    cpus = known(group.cpu_quota) or 0.0
    text = f"{cpus:g} CPUs"
    change = _write(group, "cpu.max", "max 100000")
    if not is_unknown(group.periods) and not is_unknown(group.throttled):
        window, whole = moved(group.periods), group.periods.after
        share = moved(group.throttled) / window if window else 0.0
        since = group.throttled.after / whole if whole else 0.0
        evidence = seen(
            _file(group, "cpu.stat"), f"quota {text}; throttled {share:.1%} now, {since:.1%} since it started"
        )
        if share >= THROTTLED or since >= 0.05:
            # A start on many threads is throttled too; a fifth of a lifetime is more than the start.
            priority = P0 if share >= THROTTLED or since >= 0.2 else P1
            says = f"the quota of {text} throttles it"
            return fails(says, subject(process), evidence=evidence, change=change, priority=priority)
        return passes(f"the quota of {text} is not reached", subject(process), evidence=evidence)
    evidence = seen(_file(group, "cpu.max"), text)
    needed = _gpus(facts) + 2
    if _gpus(facts) and cpus < needed:
        # vLLM documentation, CPU resources: one core a GPU worker, one for the API server, one for the engine core.
        says = f"a quota of {text} for {_gpus(facts)} GPUs: at least {needed} are needed"
        return fails(says, subject(process), evidence=evidence, change=change)
    return unknown(
        f"a quota of {text} is set; nr_throttled in cpu.stat under load tells whether it is reached",
        subject(process),
        evidence=evidence,
    )


def _quota_said(facts: Facts, limit: float) -> Iterator[Verdict]:
    said = facts.container.said
    evidence = seen(
        "attached text", f"limit {limit:g} CPUs of {said.cpus_seen or '?'}; throttled {said.throttled_ratio}"
    )
    if said.throttled_ratio is not None and said.throttled_ratio >= THROTTLED:
        yield fails(f"the quota of {limit:g} CPUs throttles it", evidence=evidence)
    elif said.gpu_limit and limit < said.gpu_limit + 2:
        says = f"{limit:g} CPUs for {said.gpu_limit} GPUs: at least {said.gpu_limit + 2} are needed"
        yield fails(says, evidence=evidence)
    elif said.cpus_seen and limit < said.cpus_seen / 4:
        says = f"{limit:g} CPUs of {said.cpus_seen}: thread pools are sized by the larger number"
        yield fails(says, evidence=evidence)
    else:
        yield unknown(
            f"a quota of {limit:g} CPUs; cpu.stat under load tells whether it is reached", evidence=evidence
        )


@check("container.cpu-shares-contention", P1, RUNTIME, unless=no_process)
def cpu_shares(facts: Facts) -> Iterator[Verdict]:
    """A server's threads do not wait behind neighbours.

    Effect: one report: raising a pod's CPU request from 2 to 6 halved inter-token latency (62 to 31 ms)
    Sure: medium
    Fix: a higher cpu.weight of its slice, or fewer neighbours
    Undo: write the former weight back
    Wrong when: its own threads wait for one another (an oversized thread pool)
    Source: Tanguille/cluster pull request 4879; Linux accounting/psi.rst
    """
    for process in _asked(facts):
        group = known(process.cgroups)[0]
        stalled = group.cpu_pressure
        if not is_unknown(stalled):
            evidence = seen(_file(group, "cpu.pressure"), f"some avg10={stalled}, weight {group.cpu_weight}")
            if stalled >= 5:
                weight = group.cpu_weight
                change = None
                if not is_unknown(weight) and weight < 1000:
                    change = _write(group, "cpu.weight", "1000", str(weight))
                says = f"its threads wait for a CPU {stalled:g} % of the time"
                yield fails(says, subject(process), evidence=evidence, change=change)
            else:
                yield passes("its threads do not wait for CPUs", subject(process), evidence=evidence)
            continue
        ran, waited = moved(known(process.run_ns)), moved(known(process.wait_ns))
        evidence = seen(f"/proc/{process.pid}/schedstat", f"ran {ran} ns, waited {waited} ns")
        if ran + waited >= 10_000_000 and waited > 0.2 * (ran + waited):
            yield fails("its main thread waits for a CPU", subject(process), evidence=evidence)
        else:
            yield passes("its main thread does not wait for a CPU", subject(process), evidence=evidence)


@check("container.cpuset-vs-gpus", P1, RUNTIME, unless=(one_node, no_process))
def cpuset(facts: Facts) -> Iterator[Verdict]:
    """A server may use CPUs and memory near its GPUs.

    Effect: all host traffic is remote; cpuset.mems beats numactl
    Sure: high
    Fix: docker update --cpuset-cpus and --cpuset-mems, or AllowedCPUs= and AllowedMemoryNodes= at run time
    Undo: the former sets
    Wrong when: the server uses only the GPUs of the node it is on (the audit cannot always tell which it uses)
    Source: Linux admin-guide/cgroup-v2.rst, cpuset; vLLM documentation, NUMA binding
    """
    homes = {
        device.numa_node
        for device in facts.pcie.devices
        if device.kind == "gpu" and not is_unknown(device.numa_node)
    }
    nodes = {node.number: node for node in facts.numa.nodes if node.number in homes}
    if not nodes:
        yield unknown("the NUMA node of no GPU is known")
        return
    near = {cpu for node in nodes.values() for cpu in known(node.cpus)}
    for process in _asked(facts):
        mask, memory = set(known(process.cpus_allowed)), set(known(process.memory_nodes_allowed))
        text = f"CPUs {cpulist.render(mask)}, memory nodes {cpulist.render(memory)}; GPUs on {sorted(nodes)}"
        evidence = seen(f"/proc/{process.pid}/status", text)
        if not mask & near:
            change = None
            group = known(process.cgroups)[0]
            if not is_unknown(group.cpuset):
                want = cpulist.render(near)
                change = _write(group, "cpuset.cpus", want, cpulist.render(group.cpuset))
            yield fails("none of its CPUs is near a GPU", subject(process), evidence=evidence, change=change)
        elif memory and not memory & set(nodes):
            yield fails("none of its memory nodes is near a GPU", subject(process), evidence=evidence)
        else:
            yield passes("CPUs and memory near the GPUs are allowed", subject(process), evidence=evidence)


@check("container.memory-limit", P1, RUNTIME)
def memory_limit(facts: Facts) -> Iterator[Verdict]:
    """The memory limit of a server's group leaves room.

    Effect: reclaim stalls, and workers killed for memory
    Sure: high
    Fix: docker update --memory, or systemctl set-property --runtime UNIT MemoryHigh=infinity
    Undo: write the former limit back
    Wrong when: what fills the group is page cache of weights, which is given back (counted as room here)
    Source: Linux admin-guide/cgroup-v2.rst, memory.high, memory.max and memory.events
    """
    asked = _asked(facts)
    if not asked:
        yield not_applicable("no inference server runs here")
        return
    if all(is_unknown(process.cgroups) for process in asked) and (killed := _killed_at_limit(facts)):
        says = f"the kernel killed {len(killed)} processes at the memory limit of their group"
        yield fails(says, evidence=lines("kernel log", killed))
        return
    for process in asked:
        verdicts = [verdict for group in known(process.cgroups) if (verdict := _memory(process, group))]
        worst = next((v for v in verdicts if v.answer == "fail"), None) or (verdicts[0] if verdicts else None)
        source = _file(process.cgroups[0], "memory.max")
        yield worst or passes("no memory limit", subject(process), evidence=seen(source, "max"))


def _killed_at_limit(facts: Facts) -> list[str]:
    """Lines of the kernel log about kills in a group, not in the whole machine."""
    events = facts.kernel.events
    kills = () if is_unknown(events) else events.oom_kills
    return [line for line in kills if "Memory cgroup out of memory" in line]


def _memory(process: Confined, group: Cgroup) -> Verdict | None:
    """The verdict on one group, None where it sets no limit."""
    limits = [
        limit
        for limit in (group.memory_max_bytes, group.memory_high_bytes)
        if not is_unknown(limit) and limit
    ]
    if not limits:
        return None
    limit, used, cache = min(limits), known(group.memory_bytes), known(group.memory_file_bytes)
    held = used - cache
    events = {} if is_unknown(group.memory_events) else group.memory_events
    text = f"{sizes(held)} held and {sizes(cache)} cache of {sizes(limit)}; events {events}"
    evidence = seen(_file(group, "memory.current"), text)
    high = group.memory_high_bytes
    if not is_unknown(high) and high and events.get("high", 0):
        change = _write(group, "memory.high", "max", str(high))
        says = f"memory.high ({sizes(high)}) has throttled it {events['high']} times"
        return fails(says, subject(process), evidence=evidence, change=change)
    if held > 0.9 * limit:
        return fails(f"{sizes(held)} of {sizes(limit)} allowed are held", subject(process), evidence=evidence)
    return passes("memory limit with room", subject(process), evidence=evidence)


@check("container.pids-limit", P2, RUNTIME)
def pids_limit(facts: Facts) -> Iterator[Verdict]:
    """The limit of processes and threads leaves room.

    Effect: a thread cannot be created under load (EAGAIN): the server dies or hangs
    Sure: high
    Fix: docker update --pids-limit, podman --pids-limit, or TasksMax= of the unit
    Undo: write the former limit back
    Wrong when: creation fails with EPERM: that is seccomp, not a limit
    Source: Linux admin-guide/cgroup-v2.rst, pids.max
    """
    if refused := _refused(facts):
        yield refused
        return
    asked = _asked(facts)
    if not asked:
        yield not_applicable("no inference server runs here")
        return
    for process in asked:
        yield _pids(process)


def _refused(facts: Facts) -> Verdict | None:
    """The verdict where a log shows that a process or thread was refused."""
    said, events = facts.container.said, facts.kernel.events
    rejected = () if is_unknown(events) else events.fork_rejected
    if rejected:
        return fails("the pids limit refused a fork", evidence=seen("kernel log", rejected[-1]))
    if not said.threads_refused:
        return None
    evidence = seen("attached log", said.threads_refused[0])
    if said.pids_limit and said.pids_limit > 0:
        return fails(f"threads are refused under a limit of {said.pids_limit}", evidence=evidence)
    if not serving(facts):
        says = "threads are refused (EAGAIN): pids.max and pids.current of the container tell whether it is the limit"
        return unknown(says, evidence=evidence)
    return None


def _pids(process: Confined) -> Verdict:
    """The verdict on the fullest of the groups around one process."""
    groups = known(process.cgroups)
    limited = [g for g in groups if not is_unknown(g.pids_max) and g.pids_max is not None]
    if not limited:
        if all(is_unknown(group.pids_max) and not group.pids_max.absent for group in groups):
            return unknown("pids.max cannot be read", subject(process))
        return passes("no limit of processes", subject(process))
    group = max(limited, key=lambda g: known(g.pids) / max(1, known(g.pids_max) or 1))
    used, limit = known(group.pids), known(group.pids_max) or 1
    evidence = seen(_file(group, "pids.max"), f"{used} of {limit}")
    if used < limit / 2:
        return passes("processes far from the limit", subject(process), evidence=evidence)
    says, priority = f"{used} of {limit} processes and threads", P1 if used > 0.8 * limit else P2
    change = _write(group, "pids.max", "max", str(limit))
    return fails(says, subject(process), evidence=evidence, change=change, priority=priority)
