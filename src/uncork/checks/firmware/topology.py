"""Sockets, nodes, threads: what the firmware makes of the processors."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    INFO,
    P1,
    P2,
    RUNTIME,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import pci_gpus
from uncork.checks.hosts import known, seen, serving, virtual_reason
from uncork.model.facts import Facts
from uncork.model.unknown import is_unknown
from uncork.parsers import cpulist


def _nodes_with_cpus(facts: Facts) -> int:
    return sum(1 for node in known(facts.numa.nodes) if known(node.cpus))


def _all_pinned(facts: Facts) -> bool:
    """Whether every serving process stays within one node."""
    nodes = [set(known(node.cpus)) for node in known(facts.numa.nodes)]
    masks = [set(known(process.cpus_allowed)) for process in serving(facts)]
    return bool(masks) and all(any(mask <= node for node in nodes) for mask in masks)


def _not_from(facts: Facts, vendor: str) -> str:
    found = known(facts.kernel.vendor)
    return "" if found == vendor else f"the processor is from {found}"


def _not_amd(facts: Facts) -> str:
    return _not_from(facts, "AuthenticAMD")


def _not_intel(facts: Facts) -> str:
    return _not_from(facts, "GenuineIntel")


@check("uefi.nps-mode", P2, FIRMWARE, unless=(virtual_reason, _not_amd))
def nps_mode(facts: Facts) -> Iterator[Verdict]:
    """An EPYC socket is one NUMA node, unless every server is pinned.

    Effect: without pinning more accesses are remote; AMD recommends NPS1 for MI300X
    Sure: medium
    Fix: NPS1 in the firmware; it changes all locality, so redo the pinning
    Undo: the former setting
    Wrong when: every process is pinned to a node
    Source: AMD Instinct MI300X system optimization
    """
    nodes, sockets = _nodes_with_cpus(facts), known(facts.firmware.sockets)
    evidence = seen("node and topology folders", f"{nodes} nodes with CPUs, {sockets} sockets")
    if nodes <= sockets:
        yield passes("one NUMA node a socket", evidence=evidence)
    elif _l3_nodes(facts):
        yield not_applicable("caches are NUMA domains (uefi.l3-as-numa)")
    elif _all_pinned(facts):
        yield passes(f"{nodes // sockets} nodes a socket, and every server is pinned", evidence=evidence)
    else:
        yield fails(f"{nodes // sockets} NUMA nodes a socket (NPS{nodes // sockets})", evidence=evidence)


def _l3_nodes(facts: Facts) -> bool:
    groups = facts.firmware.l3_groups
    nodes, sockets = _nodes_with_cpus(facts), known(facts.firmware.sockets)
    return not is_unknown(groups) and nodes == groups and nodes > sockets * 4


@check("uefi.l3-as-numa", P2, FIRMWARE, unless=(virtual_reason, _not_amd))
def l3_as_numa(facts: Facts) -> Iterator[Verdict]:
    """Caches are not NUMA domains.

    Effect: dozens of tiny nodes defeat masks, fill up early and confuse automatic binding
    Sure: medium
    Fix: `ACPI SRAT L3 cache as NUMA domain` off in the firmware
    Undo: the former setting
    Wrong when: a database on the same host wants it
    Source: AMD Instinct MI300X system optimization; rtx6kpro wiki
    """
    nodes, groups = _nodes_with_cpus(facts), known(facts.firmware.l3_groups)
    evidence = seen("node and cache folders", f"{nodes} nodes with CPUs, {groups} last-level caches")
    if _l3_nodes(facts):
        yield fails(f"each of {groups} caches is a NUMA node", evidence=evidence)
    else:
        yield passes("caches are not NUMA nodes", evidence=evidence)


@check("uefi.sub-numa-clustering", P2, FIRMWARE, unless=(virtual_reason, _not_intel))
def sub_numa(facts: Facts) -> Iterator[Verdict]:
    """A Xeon socket is one NUMA node, or pinning covers its parts.

    Effect: memory of a part is a third or half of the socket's: loaders that are not pinned spill
    Sure: medium
    Fix: sub-NUMA clustering off in the firmware (vendors differ in Xeon 6 defaults)
    Undo: the former setting
    Wrong when: every process is pinned to a part
    Source: Intel Xeon tuning guides, SNC; own reasoning
    """
    nodes, sockets = _nodes_with_cpus(facts), known(facts.firmware.sockets)
    evidence = seen("node and topology folders", f"{nodes} nodes with CPUs, {sockets} sockets")
    if nodes <= sockets:
        yield passes("one NUMA node a socket", evidence=evidence)
    elif _all_pinned(facts):
        yield passes("sub-NUMA clusters, and every server is pinned", evidence=evidence)
    else:
        yield fails(f"{nodes // sockets} NUMA nodes a socket (SNC)", evidence=evidence)


@check("uefi.smt", INFO, RUNTIME)
def smt(facts: Facts) -> Iterator[Verdict]:
    """Whether hardware threads are on: a fact.

    Effect: no published gain either way for serving
    Sure: low
    Fix: none planned; switching them off under running pods shrinks their CPU sets
    Undo: echo on to /sys/devices/system/cpu/smt/control
    Folklore: partly: switching off is HPC advice and halves threads for tokenizers and API servers
    Source: AMD Instinct MI300X system optimization; Linux ABI, sysfs-devices-system-cpu (smt)
    """
    state = facts.kernel.smt
    if is_unknown(state) and state.absent:
        yield not_applicable("this kernel knows no hardware threads")
        return
    yield passes(
        f"hardware threads: {state}", evidence=seen("/sys/devices/system/cpu/smt/control", known(state))
    )


@check("uefi.x2apic", P1, FIRMWARE)
def x2apic(facts: Facts) -> Iterator[Verdict]:
    """With 255 CPUs or more, x2APIC addresses all of them.

    Effect: CPUs whose APIC id does not fit in eight bits stay offline without interrupt remapping
    Sure: high
    Fix: x2APIC and the IOMMU on in the firmware, iommu=pt instead of iommu=off, no intremap=off or nox2apic
    Undo: the former settings
    Wrong when: the operator took CPUs offline
    Source: AMD Instinct MI300X system optimization; Linux arch/x86/kernel/apic/apic.c
    """
    present = known(facts.kernel.cpus_present)
    if len(present) < 255:
        yield not_applicable(f"{len(present)} CPUs: eight bits address them all")
        return
    missing = sorted(set(present) - set(known(facts.kernel.cpus_online)))
    events = facts.kernel.events
    lines = () if is_unknown(events) else events.apic
    text = f"{len(present)} CPUs, {cpulist.render(missing) or 'none'} offline"
    evidence = seen("/sys/devices/system/cpu", text) + (seen("kernel log", lines[-1]) if lines else ())
    refused = [line for line in lines if "doesn't support" in line or "disabled" in line or "exceed" in line]
    words = facts.kernel_version.parameters
    switched = (
        []
        if is_unknown(words)
        else [w for w in words if w in ("nox2apic", "intremap=off", "iommu=off", "amd_iommu=off")]
    )
    if missing and (refused or switched):
        cause = switched[0] if switched else "no x2APIC"
        priority = P1 if len(missing) > len(present) // 20 else P2
        yield fails(
            f"CPU {cpulist.render(missing)} cannot be addressed ({cause})",
            evidence=evidence,
            priority=priority,
        )
    elif missing:
        yield unknown(
            f"CPU {cpulist.render(missing)} is offline; the kernel log tells whether for want of x2APIC"
        )
    else:
        yield passes(f"all {len(present)} CPUs are addressed", evidence=evidence)


@check("uefi.xgmi-socket-link", P2, FIRMWARE, unless=virtual_reason)
def socket_link(facts: Facts) -> Iterator[Verdict]:
    """The link between sockets has its width and speed.

    Effect: bounds peer traffic and host copies that cross sockets
    Sure: low
    Fix: the firmware's link width and speed settings (AMD lists x16 and 32 GT/s)
    Undo: the former settings
    Source: AMD Instinct MI300X system optimization
    """
    if known(facts.firmware.sockets) < 2:
        yield not_applicable("one socket")
        return
    homes = {d.numa_node for d in pci_gpus(facts) if not is_unknown(d.numa_node)}
    if len(homes) < 2:
        yield not_applicable("GPUs hang on one socket")
        return
    yield unknown("no file tells it: measure copies between GPUs of both sockets (uncork verify)")
