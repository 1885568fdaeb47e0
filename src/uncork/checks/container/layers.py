"""What stands around this process, and what it lets through."""

from collections.abc import Iterator

from uncork.checks import (
    HOST_ONLY,
    INFO,
    NONE,
    P0,
    P1,
    P2,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import pci_gpus
from uncork.checks.hosts import known, moved, seen, virtual
from uncork.model.facts import Facts
from uncork.model.findings import Evidence
from uncork.model.unknown import is_unknown

# Guests of these see an emulated bus of 256-byte functions: no PCI Express capabilities.
_OLD_BOARD = "i440fx"


@check("container.kind", INFO, NONE)
def kind(facts: Facts) -> Iterator[Verdict]:
    """The shells around this process are named.

    Effect: decides who can make each change
    Sure: high
    Fix: none
    Undo: nothing to undo
    Wrong when: /.dockerenv alone: an image can leave it in a virtual machine's root
    Source: systemd-detect-virt(1); Linux include/linux/proc_ns.h (fixed numbers of the first namespaces)
    """
    layers = known(facts.container.layers)
    evidence = tuple(Evidence(layer.kind, layer.evidence) for layer in layers)
    says = " > ".join(layer.kind for layer in layers) or "bare metal, no container"
    if facts.container.unprivileged is True:
        says += " (unprivileged)"
    yield passes(says, evidence=evidence)


@check("container.userns", INFO, NONE)
def user_namespace(facts: Facts) -> Iterator[Verdict]:
    """Whether root here is root on the host: a fact.

    Effect: elsewhere every capability check against the first user namespace fails: global sysctls, PCI
        configuration above 64 bytes, NVML setters, the kernel log
    Sure: high
    Fix: none; a privileged container inside an unprivileged one is still unprivileged to the host
    Undo: nothing to undo
    Source: user_namespaces(7); Linux drivers/pci/pci-sysfs.c
    """
    if not facts.container.contained:
        yield not_applicable("not in a container")
    elif facts.container.unprivileged:
        yield passes("root here is nobody on the host: host settings need its administrator")
    else:
        yield passes("root here is root on the host")


@check("container.lxcfs-views", INFO, NONE)
def lxcfs(facts: Facts) -> Iterator[Verdict]:
    """Readings that lxcfs invents are known as such.

    Effect: CPU counts and memory of the container instead of the host's
    Sure: high
    Fix: none; placement is read from Cpus_allowed_list, cpu/present and the node folders instead
    Undo: nothing to undo
    Source: lxcfs documentation
    """
    paths = known(facts.container.lxcfs)
    if not paths:
        yield not_applicable("no file here comes from lxcfs")
    else:
        yield passes(
            f"lxcfs answers {len(paths)} files here", evidence=seen("/proc/self/mountinfo", ", ".join(paths))
        )


@check("container.proc-sys-writable", INFO, NONE)
def writable(facts: Facts) -> Iterator[Verdict]:
    """Which writes can succeed here: a fact.

    Effect: no plan fails half-way for a refused write
    Sure: high
    Fix: none; what is refused is handed to the host's administrator
    Undo: nothing to undo
    Source: moby and runc default read-only paths; open(2)
    """
    refused = known(facts.container.refused)
    read_only = known(facts.container.read_only)
    if not refused and not read_only:
        yield passes("kernel settings can be opened for writing")
        return
    text = "; ".join(
        [*(f"{path}: {why}" for path, why in refused.items()), *(f"{p} is read-only" for p in read_only)]
    )
    yield passes("kernel settings cannot be written from here", evidence=seen("open for writing", text))


@check("container.vm-kind", INFO, NONE)
def vm_kind(facts: Facts) -> Iterator[Verdict]:
    """The virtual machine and its board are named.

    Effect: links, BARs, NUMA and ACS seen from a guest are the hypervisor's tables; an i440fx board hides PCI
        Express capabilities
    Sure: high
    Fix: Q35 with PCI Express root ports, where the board is i440fx
    Undo: the former machine type
    Source: NVML API reference, nvmlGpuVirtualizationMode; QEMU documentation, pcie.txt
    """
    if not virtual(facts):
        yield not_applicable("not a virtual machine")
        return
    machine = known(facts.container.machine)
    assert machine is not None
    evidence = seen("virtual machine", machine.evidence)
    says = f"a {machine.hypervisor} guest" + (f" ({machine.model})" if machine.model else "")
    devices = facts.driver.gpus
    gpus = () if is_unknown(devices) else devices
    if machine.evidence.startswith("the report"):
        yield unknown(f"{says}: its BARs and links are the hypervisor's; look on the host", evidence=evidence)
    elif gpus and machine.model == _OLD_BOARD:
        yield fails(f"{says}: this board hides PCI Express capabilities", evidence=evidence)
    elif gpus and any(
        not is_unknown(gpu.bar1_total_bytes) and gpu.bar1_total_bytes <= 256 << 20 for gpu in gpus
    ):
        yield unknown(
            f"{says}: its BAR sizes and links are the hypervisor's; look on the host", evidence=evidence
        )
    elif gpus and facts.pcie.source != "sysfs":
        yield unknown(
            f"{says}: what it shows of PCI is the hypervisor's; look on the host", evidence=evidence
        )

    else:
        yield passes(says, evidence=evidence)


def _no_guest_with_gpus(facts: Facts) -> str:
    """Why questions about several GPUs in a guest do not arise, or an empty text."""
    if not virtual(facts):
        return "not a virtual machine"
    return "" if len(pci_gpus(facts)) > 1 else "fewer than two GPUs in this guest"


@check("container.vm-topology-flat", P1, HOST_ONLY, unless=_no_guest_with_gpus)
def flat_topology(facts: Facts) -> Iterator[Verdict]:
    """The guest sees how its GPUs hang together.

    Effect: NCCL picks wrong rings, engines bind to wrong nodes
    Sure: medium
    Fix: virtual NUMA and one root port or expander a node; in the guest NCCL_TOPO_FILE with the cloud's XML
    Undo: unset it; a wrong XML is worse than none
    Source: NCCL environment variables, NCCL_TOPO_FILE; azhpc-images
    """
    gpus = pci_gpus(facts)
    supplied = [
        server.environ["NCCL_TOPO_FILE"]
        for server in facts.engine.servers
        if not is_unknown(server.environ) and "NCCL_TOPO_FILE" in server.environ
    ]
    nodes = {known(device.numa_node) for device in gpus}
    paths = [known(device.path) for device in gpus]
    evidence = seen(
        "/sys/bus/pci/devices",
        f"{len(gpus)} GPUs, NUMA nodes {sorted(nodes)}, depths {[len(p) for p in paths]}",
    )
    if supplied:
        yield passes(f"topology supplied by {supplied[0]}", evidence=evidence)
    elif all(len(path) <= 1 for path in paths) and len(nodes) == 1 and len(gpus) > 2:
        yield fails("all GPUs hang on emulated ports of one node", evidence=evidence)
    else:
        yield passes("the guest's bus has structure", evidence=evidence)


@check("container.vm-gpudirect-clique", P0, HOST_ONLY, unless=_no_guest_with_gpus)
def gpudirect_clique(facts: Facts) -> Iterator[Verdict]:
    """Peer access in a guest is proven, not only granted.

    Effect: status OK while writes never arrive, although a round trip passes
    Sure: medium
    Fix: verify every ordered pair one way (uncork verify); until then NCCL_P2P_DISABLE=1 and no custom all-reduce
    Undo: unset them
    Wrong when: the one-way test passed on this very guest
    Source: open-gpu-kernel-modules 595, the P2P vendor capability; club-3090 notes on PCIe P2P
    """
    granted = facts.p2p.write
    if not is_unknown(granted) and granted and not any("ok" in row for row in granted):
        text = " / ".join(" ".join(map(str, row)) for row in granted)
        yield passes("no peer access is granted", evidence=seen("NVML P2P status, write", text))
        return
    yield unknown(
        "a guest's peer access is a claim of the hypervisor: `uncork verify` writes one way and checks"
    )


@check("container.vm-steal", P1, HOST_ONLY)
def steal(facts: Facts) -> Iterator[Verdict]:
    """The hypervisor does not take CPU time away.

    Effect: kernel launches are late by whole scheduling slices
    Sure: medium
    Fix: pinned or unshared vCPUs on the host
    Undo: the former placement
    Wrong when: lxcfs answers /proc/stat
    Source: proc_stat(5), steal
    """
    if not virtual(facts):
        yield not_applicable("not a virtual machine")
        return
    if "/proc/stat" in known(facts.container.lxcfs):
        yield unknown("/proc/stat comes from lxcfs: it shows no steal")
        return
    stolen, ticks = known(facts.container.steal), known(facts.container.ticks)
    window = moved(ticks)
    # A quarter of a second is some ten ticks a CPU: one stolen tick of few is chance, the sum since boot is not.
    share = moved(stolen) / window if window >= 1000 else stolen.after / max(1, ticks.after)
    evidence = seen("/proc/stat", f"steal {stolen.after} of {ticks.after} ticks, {share:.2%}")
    if share >= 0.01:
        yield fails(f"{share:.1%} of CPU time is stolen", evidence=evidence)
    else:
        yield passes("no CPU time is stolen", evidence=evidence)


@check("container.vm-backing-hugepages", P2, HOST_ONLY)
def backing(facts: Facts) -> Iterator[Verdict]:
    """Guests on this host have their memory in huge pages.

    Effect: the cost of two-dimensional page walks, and minutes of IOMMU mapping at boot
    Sure: medium
    Fix: 1 GiB or 2 MiB pages for the guest (a restart of it)
    Undo: the former configuration
    Source: Linux virt/kvm; libvirt domain format, memoryBacking
    """
    guests = known(facts.container.guests)
    if guests:
        yield unknown(f"{guests[0]}: look at AnonHugePages in its smaps_rollup and at its numa_maps")
    elif virtual(facts):
        yield unknown("how the hypervisor backs this guest's memory is not visible from inside")
    else:
        yield not_applicable("no guests run here")
