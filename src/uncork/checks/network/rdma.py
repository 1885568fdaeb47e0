"""RDMA adapters: links, identifiers, ordering, and their way to the GPUs."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    P0,
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
from uncork.checks.gpus import pci_gpus
from uncork.checks.hosts import active_ports, known, moved, no_rdma, one_machine, seen, spread
from uncork.model.facts import Facts
from uncork.model.facts.network import RdmaPort
from uncork.model.unknown import is_unknown

GROWING = (
    "link_downed",
    "symbol_error",
    "port_rcv_errors",
    "local_link_integrity_errors",
    "roce_adp_retrans",
)


def _name(port: RdmaPort) -> str:
    return f"{port.device}/{port.port}"


@check("network.rdma-link", P0, FIRMWARE, unless=no_rdma)
def rdma_link(facts: Facts) -> Iterator[Verdict]:
    """RDMA ports that are in use are up, at one rate, without errors.

    Effect: the slowest rail limits all
    Sure: high
    Fix: the cable, the transceiver, the switch port
    Undo: nothing to undo
    Wrong when: the port that is down beside three and more of its kind is a spare
    Source: Azure node health checks; Linux ABI, sysfs-class-infiniband
    """
    up = active_ports(facts)
    half = [
        p
        for p in facts.network.ports
        if p not in up and not is_unknown(p.physical) and p.physical == "LinkUp"
    ]
    for port in half:
        evidence = seen(f"/sys/class/infiniband/{_name(port)}", f"{port.state}, {port.physical}")
        yield fails(f"the link is up, the port is {port.state}", _name(port), evidence=evidence, priority=P1)
    if not up:
        if not half:
            yield not_applicable("no RDMA port is connected")
        return
    for port in up:
        yield _link(port, up)
    yield from _down(facts, up)


def _down(facts: Facts, up: tuple[RdmaPort, ...]) -> Iterator[Verdict]:
    """Ports that are down beside sisters that are up: one of many is missing, of a few it may be spare."""
    down = [
        port
        for port in facts.network.ports
        if not is_unknown(port.state) and port.state == "DOWN" and known(port.physical) != "LinkUp"
    ]
    for port in down:
        alike = [p for p in up if known(p.layer) == known(port.layer) and _make(p) == _make(port)]
        lost = [p for p in down if _make(p) == _make(port)]
        evidence = seen(f"/sys/class/infiniband/{_name(port)}", f"{port.state}, {port.physical}")
        if len(alike) >= 3 * len(lost):
            says = f"down ({port.physical}) while {len(alike)} of its sisters are up"
            yield fails(says, _name(port), evidence=evidence, priority=P1)
        elif alike:
            says = f"down ({port.physical}) beside {len(alike)} that are up: it may be a spare, nothing tells"
            yield unknown(says, _name(port), evidence=evidence)


def _make(port: RdmaPort) -> str:
    """The adapter's maker, the first letters of the driver's name where no more is told (mlx5_0 → mlx)."""
    return port.device.rstrip("0123456789")[:3] if is_unknown(port.vendor) else port.vendor


def _link(port: RdmaPort, up: tuple[RdmaPort, ...]) -> Verdict:
    """The verdict on one port that is up, held against its sisters of the same make and layer."""
    deltas = {name: moved(port.errors[name]) for name in GROWING if name in port.errors}
    grown = [name for name, by in deltas.items() if by]
    downs = port.errors["link_downed"].after if "link_downed" in port.errors else 0
    text = f"{port.state} {port.rate_text}; link went down {downs} times; growing: {', '.join(grown) or 'nothing'}"
    evidence = seen(f"/sys/class/infiniband/{_name(port)}", text)
    alike = [p for p in up if known(p.layer) == known(port.layer) and _make(p) == _make(port)]
    rates = [known(p.rate_gbps) for p in alike]
    if grown:
        return fails(f"errors grow: {', '.join(grown)}", _name(port), evidence=evidence)
    if known(port.rate_gbps) < max(rates) and rates.count(max(rates)) >= len(rates) / 2:
        says = f"{port.rate_gbps:g} Gb/s where its sisters have {max(rates):g}"
        return fails(says, _name(port), evidence=evidence)
    return passes("RDMA links are up without errors", _name(port), evidence=evidence)


@check("network.mtu", P1, RUNTIME)
def mtu(facts: Facts) -> Iterator[Verdict]:
    """Networks between machines carry large frames, all the same.

    Effect: throughput of RoCE and of sockets
    Sure: high
    Fix: ip link set mtu 9000, after the switch carries it
    Undo: the former MTU
    Wrong when: the other end or the switch cannot: a mismatch loses packets
    Source: ROCm GPU cluster networking, single node; NCCL troubleshooting
    """
    ports = facts.network.ports
    roce = (
        {p.interface for p in ports if p.interface and p.layer == "Ethernet" and p in active_ports(facts)}
        if not is_unknown(ports)
        else set()
    )
    if not roce and (reason := one_machine(facts)):
        yield not_applicable(reason)
        return
    cards = [c for c in known(facts.network.interfaces) if c.state == "up" and (c.name in roce or not roce)]
    if not cards:
        yield not_applicable("no network interface is up")
        return
    values = {known(card.mtu) for card in cards}
    for card in cards:
        evidence = seen(f"/sys/class/net/{card.name}/mtu", card.mtu)
        if known(card.mtu) < 4200:
            priority = P1 if spread(facts) else P2
            yield fails(f"frames of {card.mtu} bytes", card.name, evidence=evidence, priority=priority)
        elif len(values) > 1:
            yield fails(f"MTUs differ: {sorted(values)}", card.name, evidence=evidence, priority=P2)
        else:
            yield passes(f"MTU {card.mtu}", card.name, evidence=evidence)


@check("network.roce-gid-qos", P1, SERVICE_RESTART, unless=no_rdma)
def roce_gid(facts: Facts) -> Iterator[Verdict]:
    """RoCE uses version 2 addresses, and the index that was chosen is one.

    Effect: retransmissions, or no connection
    Sure: medium
    Fix: NCCL_IB_GID_INDEX of a RoCE v2 address (NCCL 2.21 and later find it), NCCL_IB_TC of the lossless class
    Undo: the former environment
    Wrong when: the fabric's owner has set another class
    Source: NCCL environment variables, NCCL_IB_GID_INDEX; ROCm GPU cluster networking
    """
    roce = [port for port in active_ports(facts) if not is_unknown(port.layer) and port.layer == "Ethernet"]
    untold = [
        port for port in facts.network.ports if is_unknown(port.state) and not is_unknown(port.gid_types)
    ]
    if not roce and not untold:
        yield not_applicable("no RoCE port is up")
        return
    for port in untold:
        if any("v2" in kind for kind in port.gid_types):
            yield passes(
                "RoCE v2 addresses are there", _name(port), evidence=seen("GIDs", ", ".join(port.gid_types))
            )
        else:
            yield unknown("no RoCE v2 address; whether it is Ethernet and up, `ibstat` tells", _name(port))
    for port in roce:
        types = known(port.gid_types)
        evidence = seen(
            f"/sys/class/infiniband/{_name(port)}/gid_attrs/types", ", ".join(types) or "none readable"
        )
        if not types:
            yield unknown("the types of its addresses cannot be read", _name(port), evidence=evidence)
        elif any("v2" in kind for kind in types):
            yield passes("RoCE v2 addresses are there", _name(port), evidence=evidence)
        else:
            yield fails("it has no RoCE v2 address", _name(port), evidence=evidence)


@check("network.nic-gpu-affinity", P1, SERVICE_RESTART, unless=no_rdma)
def nic_affinity(facts: Facts) -> Iterator[Verdict]:
    """RDMA adapters hang near the GPUs they serve.

    Effect: whether GPUDirect RDMA is used at all
    Sure: high
    Fix: NCCL_IB_HCA with the adapters of each rail
    Undo: unset it
    Wrong when: the board has none nearer
    Source: NCCL troubleshooting, GPU direct; NCCL environment variables, NCCL_NET_GDR_LEVEL
    """
    if reason := one_machine(facts):
        yield not_applicable(reason)
        return
    ports = [port for port in active_ports(facts) if port.bdf]
    gpus = [device for device in pci_gpus(facts) if device.bdf]
    if not ports or not gpus:
        yield not_applicable("no connected adapter beside a GPU")
        return
    near = {gpu for names in facts.network.gpu_neighbours.values() for gpu in names}
    homes = {port.numa_node for port in ports if not is_unknown(port.numa_node)}
    text = f"{len(near)} of {len(gpus)} GPUs share a port with an adapter; adapters on nodes {sorted(homes)}"
    evidence = seen("/sys/bus/pci/devices", text)
    alone = [
        gpu.bdf
        for gpu in gpus
        if not is_unknown(gpu.numa_node) and gpu.numa_node >= 0 and gpu.numa_node not in homes
    ]
    if alone:
        yield fails(
            f"{len(alone)} GPUs have no adapter on their node ({', '.join(alone[:4])})", evidence=evidence
        )
    else:
        yield passes("adapters on every GPU's node", evidence=evidence)


@check("network.ib-relaxed-ordering", P1, SERVICE_RESTART, unless=(no_rdma, one_machine))
def relaxed_ordering(facts: Facts) -> Iterator[Verdict]:
    """RDMA traffic may be reordered on AMD hosts and in virtual machines.

    Effect: a large loss without it there (Azure's images set it)
    Sure: medium
    Fix: NCCL_IB_PCI_RELAXED_ORDERING=1 (2 is automatic), or PCI_WR_ORDERING of the adapter's firmware
    Undo: unset it
    Wrong when: Haswell and Broadwell root ports, where the kernel switches it off on purpose
    Source: azhpc-images; NCCL environment variables, NCCL_IB_PCI_RELAXED_ORDERING
    """
    machine = facts.container.machine
    guest = not is_unknown(machine) and machine is not None
    if known(facts.kernel.vendor) != "AuthenticAMD" and not guest:
        yield not_applicable("an Intel host: ordering costs little there")
        return
    for server in facts.engine.servers:
        names = {} if is_unknown(server.environ) else server.environ
        if names.get("NCCL_IB_PCI_RELAXED_ORDERING") == "0":
            evidence = seen(f"environment of {server.pid}", "NCCL_IB_PCI_RELAXED_ORDERING=0")
            yield fails(
                "relaxed ordering is switched off for NCCL",
                f"{server.kind} ({server.pid})",
                evidence=evidence,
            )
            return
    for port in active_ports(facts):
        if is_unknown(port.relaxed_ordering):
            yield unknown(port.relaxed_ordering.reason, _name(port))
        elif port.relaxed_ordering:
            yield passes(
                "relaxed ordering is on", _name(port), evidence=seen(f"{port.bdf} DevCtl", "RlxdOrd+")
            )
        else:
            yield fails(
                "relaxed ordering is off", _name(port), evidence=seen(f"{port.bdf} DevCtl", "RlxdOrd-")
            )


@check("network.nic-firmware-settings", P2, FIRMWARE, unless=no_rdma)
def nic_firmware(facts: Facts) -> Iterator[Verdict]:
    """Advanced PCI settings of ConnectX adapters are as the vendor says.

    Effect: read bandwidth
    Sure: low
    Fix: mlxconfig, then a reset of the adapter
    Undo: the former values
    Folklore: partly
    Source: ROCm GPU cluster networking, single node
    """
    if not any(not is_unknown(port.vendor) and port.vendor == "0x15b3" for port in facts.network.ports):
        yield not_applicable("no ConnectX adapter")
        return
    yield unknown(
        "not in sysfs: `mlxconfig -d DEVICE query` shows MAX_ACC_OUT_READ, PCI_WR_ORDERING and ATS_ENABLED"
    )
