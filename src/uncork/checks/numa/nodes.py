"""Nodes, their memory, and the devices on them."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    INFO,
    NONE,
    P1,
    P2,
    RUNTIME,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
)
from uncork.checks.gpus import pci_gpus
from uncork.checks.hosts import GIB, known, moved, one_node, seen, sizes
from uncork.model.facts import Facts
from uncork.model.findings import Change
from uncork.model.unknown import is_unknown
from uncork.parsers import cpulist


@check("numa.topology-facts", P1, NONE)
def topology(facts: Facts) -> Iterator[Verdict]:
    """Every node with CPUs has memory, and sockets have alike amounts.

    Effect: the CPUs of a node without memory use remote memory only (arithmetic)
    Sure: high
    Fix: memory modules for that socket
    Undo: nothing to undo
    Wrong when: memory without CPUs is a GPU's (Grace) or CXL's: not a fault
    Source: Linux ABI, sysfs-devices-node
    """
    nodes = known(facts.numa.nodes)
    parts = []
    for node in nodes:
        cpus = "?" if is_unknown(node.cpus) else cpulist.render(node.cpus) or "none"
        memory = "?" if is_unknown(node.memory_bytes) else sizes(node.memory_bytes)
        parts.append(f"node {node.number}: CPUs {cpus}, {memory}")
    evidence = seen("/sys/devices/system/node", "; ".join(parts))
    bare = [n.number for n in nodes if not is_unknown(n.memory_bytes) and n.cpus and n.memory_bytes == 0]
    amounts = [
        n.memory_bytes for n in nodes if not is_unknown(n.memory_bytes) and not is_unknown(n.cpus) and n.cpus
    ]
    if bare:
        yield fails(f"node {bare[0]} has CPUs and no memory", evidence=evidence)
    elif len(amounts) > 1 and min(amounts) < 0.6 * max(amounts):
        says = f"nodes have unequal memory ({sizes(min(amounts))} and {sizes(max(amounts))})"
        yield fails(says, evidence=evidence, priority=P2)
    else:
        yield passes(
            f"{len(nodes)} NUMA node{'s' if len(nodes) > 1 else ''}, all with memory", evidence=evidence
        )


@check("numa.gpu-node-unknown", P1, FIRMWARE, unless=one_node)
def gpu_node(facts: Facts) -> Iterator[Verdict]:
    """Every GPU says which node it is on.

    Effect: engines skip the binding or bind wrongly; NCCL takes node 0
    Sure: medium
    Fix: the firmware's proximity tables (_PXM); meanwhile the engine's own NUMA flag
    Undo: nothing to undo
    Wrong when: a guest without virtual NUMA. Never write numa_node: it taints the kernel
    Source: Linux ABI, sysfs-bus-pci (numa_node)
    """
    gpus = [device for device in pci_gpus(facts) if device.bdf]
    if not gpus:
        yield not_applicable("no GPU on the bus")
        return
    for gpu in gpus:
        node = known(gpu.numa_node)
        evidence = seen(f"{gpu.bdf} numa_node", node)
        if node >= 0:
            yield passes("every GPU knows its node", gpu.bdf, evidence=evidence)
        else:
            yield fails("the firmware does not say which node it is on", gpu.bdf, evidence=evidence)


@check("numa.node-free-memory", P1, RUNTIME, unless=one_node)
def free_memory(facts: Facts) -> Iterator[Verdict]:
    """The nodes of GPUs have memory left for their ranks.

    Effect: allocations spill to the remote node
    Sure: high
    Fix: write 1 to /proc/sys/vm/drop_caches before the start of a server, never while it serves
    Undo: a dropped cache cannot be undone; the next load is slower
    Wrong when: the server has allocated everything already
    Folklore: partly: dropping caches helps only before the start
    Source: Linux admin-guide/sysctl/vm.rst, drop_caches; Linux admin-guide/numastat.rst
    """
    homes = {d.numa_node for d in pci_gpus(facts) if not is_unknown(d.numa_node)}
    nodes = [node for node in known(facts.numa.nodes) if node.number in homes]
    if not nodes:
        yield not_applicable("no GPU on a known node")
        return
    for node in nodes:
        total, free = known(node.memory_bytes), known(node.free_bytes)
        cache = 0 if is_unknown(node.inactive_file_bytes) else node.inactive_file_bytes
        missed = 0 if is_unknown(node.missed) else moved(node.missed)
        evidence = seen(
            f"node{node.number}/meminfo, numastat",
            f"{sizes(free)} free, {sizes(cache)} clean cache, +{missed} missed",
        )
        name = f"node {node.number}"
        if missed > 1000:
            yield fails("allocations of other nodes land here, or miss their own", name, evidence=evidence)
        elif free + cache < max(4 * GIB, total // 50):
            yield fails(f"{sizes(free + cache)} of {sizes(total)} left", name, evidence=evidence)
        else:
            yield passes("GPU nodes have memory left", name, evidence=evidence)


@check("numa.irq-locality", P2, RUNTIME, unless=one_node)
def interrupts(facts: Facts) -> Iterator[Verdict]:
    """Interrupts of adapters and drives are served on their own node.

    Effect: microseconds an interrupt
    Sure: low
    Fix: write the local CPUs to smp_affinity_list; managed interrupts refuse, irqbalance writes again
    Undo: write the former lists back
    Folklore: partly: it matters to network adapters, little to GPUs
    Source: mlnx_tune; Linux core-api/irq/irq-affinity.rst
    """
    devices = [
        device for device in known(facts.numa.devices) if device.kind in ("nic", "gpu") and device.count
    ]
    if not devices:
        yield not_applicable("no adapter with message interrupts")
        return
    for device in devices:
        if is_unknown(device.local_cpus) or not device.local_cpus:
            continue
        evidence = seen(
            f"{device.bdf} msi_irqs", f"{len(device.remote)} of {device.count} vectors on another node"
        )
        if device.kind == "nic" and len(device.remote) > device.count / 2:
            want = cpulist.render(device.local_cpus)
            changes = [
                Change("irq_affinity", str(number), want, before=cpulist.render(served))
                for number, served in device.remote
            ]
            yield fails(
                "most of its interrupts are served on another node",
                device.bdf,
                evidence=evidence,
                changes=changes,
            )
        else:
            yield passes("interrupts served near their device", device.bdf, evidence=evidence)


@check("numa.loader-page-cache", INFO, NONE, unless=one_node)
def page_cache(facts: Facts) -> Iterator[Verdict]:
    """On which node the page cache lies: a fact.

    Effect: host-to-device copies from a remote cache while loading; none afterwards
    Sure: low
    Fix: none
    Undo: nothing to undo
    Source: Linux filesystems/proc.rst; own reasoning
    """
    shares = {node.number: known(node.file_bytes) for node in known(facts.numa.nodes)}
    text = ", ".join(f"node {number}: {sizes(size)}" for number, size in shares.items())
    yield passes(f"page cache: {text}", evidence=seen("node*/meminfo FilePages", text))
