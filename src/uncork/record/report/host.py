"""The host as a drawing: sockets, NUMA nodes, root ports, switches and devices, with what is wrong on its device."""

from collections.abc import Iterable, Sequence

from uncork.model.findings import Audit, Priority, Result
from uncork.record.markdown import one_line
from uncork.record.report.markup import Html, fold, items, join, section, table, tag
from uncork.record.report.verdict import failing
from uncork.record.topology import Device, Node, Topology

# Transfer rates in GT/s by PCIe generation (PCI Express Base Specification 6.0, table 1-2).
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_KINDS = {"gpu": "GPU", "nic": "NIC", "nvme": "NVMe", "nvswitch": "NVSwitch"}
SHOWN_FINDINGS = 3  # of a device
_ORDER = ("gpu", "nvswitch", "nic", "nvme")


def host(topology: Topology | None, audit: Audit | None) -> Html:
    """The host's part of the page."""
    if topology is None:
        return Html("")
    wrong = _wrong(audit)
    drawn = [_socket(number, nodes, topology, wrong) for number, nodes in _sockets(topology)]
    strays = [one for one in topology.devices if one.node not in {node.number for node in topology.nodes}]
    if strays:
        drawn.append(tag("div", tag("p", "NUMA node not known"), _roots(strays, wrong), class_="box socket"))
    body = [
        tag("div", *drawn, class_="tree"),
        tag("p", _legend(topology.devices), class_="note"),
        items(f"Not known: {why}" for why in topology.why),
        fold("How each GPU reaches each other (nvidia-smi topo)", _levels(topology)),
    ]
    return section("host", "The host", *body)


def _legend(devices: Sequence[Device]) -> str:
    if not devices:
        return "No GPU, network or NVMe device on the PCI bus of this host."
    return "A framed device has a finding. Links: now, and in brackets what both ends can do; idle GPUs run at Gen1."


def _sockets(topology: Topology) -> Iterable[tuple[int | None, Sequence[Node]]]:
    """Nodes by socket: consecutive equal shares, as firmware numbers them; one group where that does not divide."""
    count = topology.sockets or 0
    nodes = topology.nodes
    if count < 1 or len(nodes) % count:
        return [(None, nodes)] if nodes else []
    share = len(nodes) // count
    return [(at, nodes[at * share : (at + 1) * share]) for at in range(count)]


def _socket(
    number: int | None, nodes: Sequence[Node], topology: Topology, wrong: dict[str, list[Result]]
) -> Html:
    title = "Processors" if number is None else f"Socket {number}"
    inner = [
        _node(node, [one for one in topology.devices if one.node == node.number], wrong) for node in nodes
    ]
    return tag("div", tag("p", title), *inner, class_="box socket")


def _node(node: Node, devices: Sequence[Device], wrong: dict[str, list[Result]]) -> Html:
    memory = "memory not known" if node.memory_bytes is None else f"{node.memory_bytes / 2**30:,.0f} GiB"
    head = tag("p", f"NUMA node {node.number}"), tag("p", f"CPUs {node.cpus or 'none'}; {memory}")
    return tag("div", *head, _roots(devices, wrong), class_="box node")


def _roots(devices: Sequence[Device], wrong: dict[str, list[Result]]) -> Html:
    roots: dict[str, list[Device]] = {}
    for one in devices:
        roots.setdefault(one.root, []).append(one)
    boxes = []
    for root, below in roots.items():
        inner = _below(below, 0, wrong)
        boxes.append(tag("div", tag("p", f"root port {root}"), inner, class_="box root") if root else inner)
    return join(boxes)


def _below(devices: Sequence[Device], depth: int, wrong: dict[str, list[Result]]) -> Html:
    """Devices at this depth of switches, and a box for each switch below."""
    here = [one for one in devices if len(one.switches) <= depth]
    deeper: dict[str, list[Device]] = {}
    for one in devices:
        if len(one.switches) > depth:
            deeper.setdefault(one.switches[depth], []).append(one)
    boxes = [
        tag("div", tag("p", f"switch {bdf}"), _below(below, depth + 1, wrong), class_="box switch")
        for bdf, below in deeper.items()
    ]
    ordered = sorted(here, key=lambda one: _ORDER.index(one.kind))
    cards = tag("div", *(_device(one, wrong.get(one.bdf, [])) for one in ordered), class_="devices")
    return join([cards if here else "", *boxes])


def _device(one: Device, found: Sequence[Result]) -> Html:
    number = "" if one.index is None else f" {one.index}"
    lines = [
        tag("p", tag("b", f"{_KINDS[one.kind]}{number}"), f" {one.name}"),
        tag("p", one.bdf + (f", {one.note}" if one.note else "")),
        tag("p", _link(one)),
    ]
    ids = {result.id: result for result in found}
    lines += [
        tag("p", f"▲ {result.priority.value} {one_line(result.says, 120)} ({id})", class_="says")
        for id, result in list(ids.items())[:SHOWN_FINDINGS]
    ]
    if len(ids) > SHOWN_FINDINGS:
        lines.append(tag("p", f"▲ and {len(ids) - SHOWN_FINDINGS} more findings", class_="says"))
    return tag("div", *lines, class_=f"device {one.kind}" + (" wrong" if found else ""))


def _link(one: Device) -> str:
    """Gen1 x16 (Gen5 x16)."""
    if one.width is None or one.speed_gt_s is None:
        return "link not readable"
    now = f"Gen{_GENERATIONS.get(one.speed_gt_s, '?')} x{one.width}"
    if one.max_speed_gt_s is None or one.max_width is None:
        return now
    return f"{now} (Gen{_GENERATIONS.get(one.max_speed_gt_s, '?')} x{one.max_width})"


def _wrong(audit: Audit | None) -> dict[str, list[Result]]:
    """Findings of weight by the address that is their subject."""
    found: dict[str, list[Result]] = {}
    for result in failing(audit):
        if result.priority is not Priority.INFO:
            for word in result.subject.replace(",", " ").split():
                found.setdefault(word.lower(), []).append(result)
    return found


def _levels(topology: Topology) -> Html:
    size = len(topology.levels)
    head = ("", *(f"GPU{at}" for at in range(size)))
    return table("", head, ((f"GPU{at}", *row) for at, row in enumerate(topology.levels)))
