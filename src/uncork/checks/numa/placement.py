"""Where serving processes run, where their memory is, and whether a binding took effect."""

from collections.abc import Iterator

from uncork.checks import (
    P1,
    P2,
    RUNTIME,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.hosts import (
    identity,
    known,
    no_process,
    no_server,
    one_node,
    seen,
    serving,
    sizes,
    subject,
)
from uncork.model.facts import Facts
from uncork.model.facts.engine import Process, Server
from uncork.model.findings import Change
from uncork.model.unknown import Unknown, is_unknown
from uncork.parsers import cpulist

_BIND_FLAGS = ("numa-bind", "numa-node", "numa-bind-nodes", "numa")


def _out_of_scope(facts: Facts) -> str:
    """Why placement does not arise, or an empty text."""
    return one_node(facts) or no_server(facts)


def gpu_nodes(facts: Facts) -> dict[str, int]:
    """PCI address of each GPU → its node, where it is known."""
    return {
        device.bdf: device.numa_node
        for device in facts.pcie.devices
        if device.kind == "gpu" and not is_unknown(device.numa_node) and device.numa_node >= 0
    }


def nodes_of(facts: Facts, pid: int) -> set[int]:
    """The nodes of the GPUs that a process holds memory of; empty where that is not seen."""
    gpus = facts.driver.gpus
    homes = gpu_nodes(facts)
    found = set()
    for gpu in () if is_unknown(gpus) else gpus:
        if is_unknown(gpu.processes) or is_unknown(gpu.bdf):
            continue
        if any(process.pid == pid for process in gpu.processes) and gpu.bdf in homes:
            found.add(homes[gpu.bdf])
    return found


def ranks(facts: Facts) -> list[tuple[Server, Process, set[int]]]:
    """Processes that hold GPU memory, with the nodes of their GPUs."""
    found = []
    for server in facts.engine.servers:
        for process in server.processes:
            homes = nodes_of(facts, process.pid)
            if homes:
                found.append((server, process, homes))
    return found


@check("numa.rank-cpu-affinity", P1, RUNTIME, unless=_out_of_scope)
def rank_affinity(facts: Facts) -> Iterator[Verdict]:
    """Each rank runs on CPUs of its GPU's node.

    Effect: to be measured: +0.7 % on one vLLM instance and -43 % on another, 11.8 to 9.9 ms a token on an Ascend
        host; never apply without a benchmark
    Sure: medium
    Fix: sched_setaffinity for every thread of the rank; durable: --numa-bind, --numa-node or numactl
    Undo: restore the former masks
    Wrong when: the node has too few CPUs for its ranks; memory that is allocated stays where it is
    Source: vLLM documentation, NUMA binding; vllm-project/vllm issue 55416; vllm-project/vllm-ascend issue 6966
    """
    found = ranks(facts)
    if not found:
        yield unknown("which process holds which GPU is not seen from here")
        return
    cpus = {node.number: set(known(node.cpus)) for node in known(facts.numa.nodes)}
    for server, process, homes in found:
        mask = set(known(process.cpus_allowed))
        near = set().union(*(cpus.get(node, set()) for node in homes))
        name = f"{process.title} ({process.pid})"
        evidence = seen(
            f"/proc/{process.pid}/status",
            f"runs on {cpulist.render(mask)}; its GPU is on node {sorted(homes)}",
        )
        want = cpulist.render(near)
        who = next((identity(p) for p in serving(facts) if p.pid == process.pid), str(process.pid))
        change = Change("affinity", who, want, before=cpulist.render(mask)) if near else None
        if mask <= near:
            yield passes("ranks run near their GPUs", name, evidence=evidence)
        elif not mask & near:
            yield fails(f"{server.kind} runs it on the wrong node", name, evidence=evidence, change=change)
        else:
            # Gains and losses are both published for this: worth a trial by its owner, not a planned write.
            yield fails("it may run on any node", name, evidence=evidence, priority=P2)


@check("numa.rank-memory-locality", P1, SERVICE_RESTART, unless=_out_of_scope)
def rank_memory(facts: Facts) -> Iterator[Verdict]:
    """Host memory of a rank lies on its GPU's node.

    Effect: one TensorRT-LLM case: 22 % remote, because the binding came after the allocation
    Sure: medium
    Fix: bind at the start; migrate_pages(2) stalls for seconds and leaves pinned pages where they are
    Undo: migrate back
    Wrong when: weights are shared by ranks of several nodes
    Source: NVIDIA/TensorRT-LLM issue 18117; migrate_pages(2)
    """
    found = ranks(facts)
    if not found:
        yield unknown("which process holds which GPU is not seen from here")
        return
    for _, process, homes in found:
        residence = known(facts.numa.residences.get(process.pid, Unknown("its numa_maps was not read")))
        total = sum(residence.node_bytes.values())
        local = sum(residence.node_bytes.get(node, 0) for node in homes)
        name = f"{process.title} ({process.pid})"
        text = ", ".join(
            f"node {number}: {sizes(size)}" for number, size in sorted(residence.node_bytes.items())
        )
        evidence = seen(f"/proc/{process.pid}/numa_maps", f"{text}; its GPU is on node {sorted(homes)}")
        if total and local < 0.9 * total:
            yield fails(f"{1 - local / total:.0%} of its memory is remote", name, evidence=evidence)
        else:
            yield passes("rank memory is local", name, evidence=evidence)


@check("numa.interleave-policy", P2, SERVICE_RESTART, unless=(one_node, no_process))
def interleave(facts: Facts) -> Iterator[Verdict]:
    """No rank interleaves its memory or is bound to the wrong node.

    Effect: half of the staging buffers are remote
    Sure: medium
    Fix: start it without numactl --interleave
    Undo: the former command
    Wrong when: weights are computed on by CPUs (offloaded experts): interleaving is right there
    Folklore: partly
    Source: numa_maps(5), in proc_pid_numa_maps(5)
    """
    for process in serving(facts):
        residence = facts.numa.residences.get(process.pid)
        if residence is None:
            continue
        policies = known(residence).policy_bytes
        total = sum(policies.values())
        spread = sum(size for policy, size in policies.items() if policy.startswith("interleave"))
        text = ", ".join(f"{policy}: {sizes(size)}" for policy, size in sorted(policies.items()))
        evidence = seen(f"/proc/{process.pid}/numa_maps", text)
        if total and spread > total / 2:
            yield fails("its memory is interleaved over nodes", subject(process), evidence=evidence)
        else:
            yield passes("no interleaved server memory", subject(process), evidence=evidence)


@check("numa.binding-tool-missing", P1, SERVICE_RESTART, unless=_out_of_scope)
def binding_tool(facts: Facts) -> Iterator[Verdict]:
    """A binding that was asked for took effect.

    Effect: people believe that a server is bound, and it is not
    Sure: high
    Fix: numactl in the image and CAP_SYS_NICE for the container
    Undo: nothing to undo
    Source: vllm-project/vllm issue 55416; SGLang server arguments
    """
    asked = False
    nodes = [
        set(known(node.cpus)) for node in known(facts.numa.nodes) if not is_unknown(node.cpus) and node.cpus
    ]
    for server in facts.engine.servers:
        flag = next(
            (f"--{name}" for name in _BIND_FLAGS if server.flags.get(name, "false") not in ("false", "")), ""
        )
        names = {} if is_unknown(server.environ) else server.environ
        flag = flag or next((name for name in names if "NUMA" in name and names[name] not in ("0", "")), "")
        if not flag:
            continue
        asked = True
        workers = [p for p in server.processes if p.role in ("worker", "scheduler")] or list(server.processes)
        bound = [p for p in workers if any(set(known(p.cpus_allowed)) <= cpus for cpus in nodes)]
        tool = facts.numa.numactl.get(server.pid)
        there = "not seen" if tool is None or is_unknown(tool) else "there" if tool else "missing"
        evidence = seen(
            f"{flag}, masks of {len(workers)} processes",
            f"{len(bound)} within one node; numactl or libnuma {there}",
        )
        if len(bound) == len(workers):
            yield passes("the binding took effect", f"{server.kind} ({server.pid})", evidence=evidence)
        else:
            yield fails(f"{flag} had no effect", f"{server.kind} ({server.pid})", evidence=evidence)
    if not asked:
        yield not_applicable("no server asks for a binding")


@check("numa.cross-socket-tp", P1, SERVICE_RESTART, unless=_out_of_scope)
def cross_socket(facts: Facts) -> Iterator[Verdict]:
    """A tensor-parallel group stays on one socket where it fits.

    Effect: collectives cross the socket link
    Sure: high
    Fix: CUDA_VISIBLE_DEVICES, or one instance a socket
    Undo: the former list
    Wrong when: NVSwitch joins all GPUs, or the other GPUs are taken
    Source: NCCL troubleshooting, topology
    """
    gpus = facts.driver.gpus
    linked = not is_unknown(gpus) and any(not is_unknown(g.nvlink_count) and g.nvlink_count for g in gpus)
    if linked or any(device.kind == "nvswitch" for device in facts.pcie.devices):
        yield not_applicable("NVLink joins the GPUs")
        return
    homes = gpu_nodes(facts)
    asked = False
    for server in facts.engine.servers:
        used = {n for process in server.processes for n in nodes_of(facts, process.pid)}
        flag = server.flags.get("tensor-parallel-size", "1")
        size = int(flag) if flag.isdecimal() else 1
        if size < 2 or not used:
            continue
        asked = True
        room = max(list(homes.values()).count(node) for node in set(homes.values()))
        name = f"{server.kind} ({server.pid})"
        evidence = seen("GPU nodes", f"TP {size} on nodes {sorted(used)}; {room} GPUs on the largest node")
        if len(used) > 1 and size <= room:
            yield fails(
                f"its {size} GPUs span nodes {sorted(used)} although {room} fit on one",
                name,
                evidence=evidence,
            )
        else:
            yield passes("tensor-parallel groups use as few nodes as they can", name, evidence=evidence)
    if not asked:
        yield not_applicable("no tensor-parallel group whose GPUs are seen")
