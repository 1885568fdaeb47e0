"""The way between GPUs: ACS, shared uplinks, chipsets, switches."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    HOST_ONLY,
    NONE,
    P0,
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
from uncork.checks.driver.options import peers_matter
from uncork.checks.gpus import each, gpus, iommu_translates, lines, no_amd, pci_gpus
from uncork.checks.hosts import known, seen
from uncork.checks.pcie.links import LANE_GB_S, guest
from uncork.explorers.pci_config import ACS_REDIRECT
from uncork.explorers.pci_ids import is_chipset_bridge
from uncork.model.facts import Facts
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Change, Priority
from uncork.model.unknown import UnknownValue, is_unknown

_BROADCOM = (0x1000, 0x10B5)


def between(facts: Facts) -> dict[str, bool]:
    """Ports that peer traffic of some pair passes → whether some such pair stands under one switch.

    A pair is two GPUs, or a GPU and an RDMA adapter under one switch. Ports below the common ancestor count, root
    ports only where the two stand under different roots.
    """
    found: dict[str, bool] = {}
    cards = [device.path for device in pci_gpus(facts) if not is_unknown(device.path)]
    for at, one in enumerate(cards):
        for other in cards[at + 1 :]:
            _add(found, one, other)
        for adapter in _rdma_paths(facts):
            if one and adapter and one[0] == adapter[0]:
                _add(found, one, adapter)
    return found


def _add(found: dict[str, bool], one: tuple[str, ...], other: tuple[str, ...]) -> None:
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    # An upstream port of a switch holds no peer traffic back: the ports below it do.
    for port in (*one[shared:], *other[shared:]):
        found[port] = found.get(port, False) or shared > 0


def _rdma_paths(facts: Facts) -> list[tuple[str, ...]]:
    """Paths of adapters that do RDMA; none where that is not known."""
    if is_unknown(facts.network) or is_unknown(facts.network.ports):
        return []
    wanted = {port.bdf for port in facts.network.ports}
    return [d.path for d in facts.pcie.devices if d.bdf in wanted and not is_unknown(d.path)]


@check("pcie.acs-redirect", P0, RUNTIME)
def acs(facts: Facts) -> Iterator[Verdict]:
    """No port between GPUs redirects peer traffic through the root.

    Effect: 50 instead of 103 GB/s for a pair under one switch; with a translating IOMMU hangs and wrong data too
    Sure: high
    Fix: clear the redirect bits of these ports only; durable: pci=disable_acs_redir=… on the command line
    Undo: write the former control word back; it is lost at a reset, hotplug or reboot anyway
    Wrong when: virtual machines, vfio or SR-IOV use this host: they rely on the isolation, and groups are fixed at
        boot; a guest must keep ACS where its devices use ATS
    Folklore: partly: scripts that clear every bit on every bridge go too far, and pci=noacs is no option of Linux
    Source: NCCL user guide, troubleshooting; rtx6kpro measurements; NCCL issue 2079; Linux p2pdma
    """
    test = facts.p2p.test
    if not is_unknown(test) and test.acs_refused:
        yield fails(
            "peer access is refused while ACS redirects", evidence=seen("peer test", test.acs_refused)
        )
        return
    devices = known(facts.pcie.devices)
    fragments = [d for d in devices if d.kind == "fragment" and not is_unknown(d.config) and _redirects(d)]
    for device in fragments:
        yield fails("ACS redirects peer traffic at a port", evidence=seen("ACSCtl", _word(device)))
    if fragments:
        return
    if guest(facts):
        yield not_applicable("a virtual machine: ACS belongs to its host")
        return
    cards = pci_gpus(facts)
    ports = between(facts) if facts.pcie.tree_known else {d.bdf: True for d in devices if d.kind == "bridge"}
    if len(cards) < 2 and (not cards or not ports):
        clear = [d for d in devices if d.kind in ("fragment", "bridge") and not is_unknown(d.config)]
        if not cards and any(_said(d) for d in clear):
            yield from _unplaced([d for d in clear if _said(d)])
            return
        yield not_applicable("fewer than two GPUs")
        return
    asked = [d for d in devices if d.bdf in ports]
    yield from each(
        asked, lambda device: device.bdf, lambda device: _port(facts, device, under_switch=ports[device.bdf])
    )


def _said(device: PciDevice) -> bool:
    control = known(device.config).acs_control
    return control is not None and not is_unknown(control)


def _unplaced(devices: list[PciDevice]) -> Iterator[Verdict]:
    """Ports of which no text says what stands below them."""
    for device in devices:
        if _redirects(device):
            yield fails("ACS redirects peer traffic", device.bdf, evidence=seen("ACSCtl", _word(device)))
        else:
            yield passes("no redirect", device.bdf)


def _redirects(device: PciDevice) -> bool:
    control = known(device.config).acs_control
    return control is not None and not is_unknown(control) and bool(control & ACS_REDIRECT)


def _word(device: PciDevice) -> str:
    return f"{known(known(device.config).acs_control):#06x}"


def _weight(facts: Facts, *, under_switch: bool) -> Priority:
    """P0 where a switch could have carried the traffic or DMA is translated; P1 between roots without translation;
    P2 where the stock driver gives fewer than two of the GPUs peer access."""
    if not peers_matter(facts):
        return P2
    try:
        return P0 if under_switch or iommu_translates(facts) else P1
    except UnknownValue:
        return P0


def _port(facts: Facts, device: PciDevice, *, under_switch: bool) -> Iterator[Verdict]:
    control = known(device.config).acs_control
    if control is None or not known(control) & ACS_REDIRECT:
        yield passes("no redirect", device.bdf)
        return
    users = (*facts.pcie.isolation_users, *_guests(facts))
    shown = seen("ACSCtl", _word(device))
    if users:
        yield fails(
            f"ACS redirects peer traffic, and {users[0]}: it must stay",
            device.bdf,
            priority=P2,
            change_class=NONE,
            evidence=shown,
        )
        return
    before = f"0x{known(control) & ACS_REDIRECT:02x}"
    yield fails(
        "ACS redirects peer traffic through the root",
        device.bdf,
        priority=_weight(facts, under_switch=under_switch),
        change=Change("pci_acs", device.bdf, "0x00", before=before),
        evidence=shown,
    )


def _guests(facts: Facts) -> tuple[str, ...]:
    if is_unknown(facts.container) or is_unknown(facts.container.guests) or not facts.container.guests:
        return ()
    return (f"{len(facts.container.guests)} virtual machines run",)


@check("pcie.shared-uplink", P1, NONE)
def shared_uplink(facts: Facts) -> Iterator[Verdict]:
    """GPUs do not crowd one uplink.

    Effect: with all of them at once each host copy gets its share of the uplink
    Sure: high
    Fix: choose GPUs of different uplinks for one group where peer traffic does not matter more
    Undo: nothing to undo
    Wrong when: peer traffic stays below the switch, which is what the switch is for
    Source: rtx6kpro measurements; NCCL issue 1086
    """
    pattern = _uplink_pattern(facts)
    if pattern:
        yield unknown(
            f"the bandwidth matrix looks like shared uplinks ({pattern}); lspci -tv would show them"
        )
        return
    cards = pci_gpus(facts)
    if len(cards) < 2:
        yield not_applicable("fewer than two GPUs")
        return
    if guest(facts):
        yield not_applicable("a virtual machine: its tree is the hypervisor's")
        return
    by_uplink: dict[str, list[PciDevice]] = {}
    for device in cards:
        path = known(device.path)
        by_uplink.setdefault(path[0] if path else device.bdf, []).append(device)
    for root, group in sorted(by_uplink.items()):
        if len(group) < 2:
            yield passes("an uplink of its own", group[0].bdf)
            continue
        port = next((d for d in facts.pcie.devices if d.bdf == root), None)
        below = sum(_gb_s(d) for d in group)
        above = _gb_s(port) if port else _gb_s(group[0])
        words = f"{len(group)} GPUs share one uplink: {below:.0f} GB/s of links on {above:.0f}"
        shown = seen("path", ", ".join(d.bdf for d in group))
        # Two GPUs behind a switch is how these servers are built; it is worth knowing, and no fault.
        if below > 2.05 * above:
            yield fails(words, root, evidence=shown)
        else:
            yield fails(words, root, priority=P2, evidence=shown)


def _gb_s(device: PciDevice) -> float:
    return LANE_GB_S.get(known(device.max_speed_gt_s), 0.0) * known(device.max_width)


def _uplink_pattern(facts: Facts) -> str:
    """Whether a bandwidth matrix falls into equal blocks that are slower inside than between."""
    test = facts.p2p.test
    for title, cells in () if is_unknown(test) else test.bandwidth:
        if "idirectional" not in title or len({a for a, _ in cells}) < 4:
            continue
        off = {pair: value for pair, value in cells.items() if pair[0] != pair[1]}
        middle = sorted(off.values())[len(off) // 2]
        slow = [pair for pair, value in off.items() if value < 0.85 * max(off.values())]
        fast = [pair for pair in off if pair not in slow]
        if slow and fast and max(off[p] for p in slow) < min(off[p] for p in fast):
            return f"{min(off.values()):.1f} against {max(off.values()):.1f} GB/s, median {middle:.1f}"
    return ""


@check("pcie.gpu-behind-chipset", P1, HOST_ONLY)
def chipset(facts: Facts) -> Iterator[Verdict]:
    """No GPU hangs on the chipset's lanes.

    Effect: it shares a narrow link with disks and USB; every group it is in runs at that pace
    Sure: high
    Fix: a slot with lanes of the processor; topo -m cannot show the difference
    Undo: nothing to undo
    Wrong when: the card only draws the screen
    Source: club-3090 thread 895; pci.ids, chipset bridges
    """
    test = facts.p2p.test
    for _, _, line in () if is_unknown(test) else test.pairings:
        if "chipset" in line.lower():
            yield fails("the report says so, and its bandwidth agrees", evidence=seen("bandwidth", line))
            return
    if is_unknown(facts.pcie.devices) and not is_unknown(test) and test.pairings:
        yield unknown(
            "pairs differ in bandwidth; attach `lspci -tv` and `lspci -nn` to see what is above each GPU"
        )
        return
    by_bdf = {device.bdf: device for device in facts.pcie.devices}

    def judge(device: PciDevice) -> Iterator[Verdict]:
        for step in known(device.path):
            port = by_bdf.get(step)
            if port is not None and port.name == "chipset":
                shown = seen("lspci -tv", f"{step} leads to the chipset's devices too")
                yield fails("attached through the chipset", device.bdf, evidence=shown)
                return
            if port is None or is_unknown(port.vendor) or is_unknown(port.device):
                continue
            if is_chipset_bridge(port.vendor, port.device, port.bdf):
                yield fails(
                    "attached through the chipset",
                    device.bdf,
                    evidence=seen("path", f"{step} {port.name}"),
                )
                return
        yield passes("lanes of the processor", device.bdf)

    if guest(facts):
        yield not_applicable("a virtual machine: its tree is the hypervisor's")
    else:
        yield from each(pci_gpus(facts), lambda device: device.bdf, judge)


@check("pcie.atomics", P1, FIRMWARE, unless=no_amd)
def atomics(facts: Facts) -> Iterator[Verdict]:
    """Ports above AMD GPUs route atomic operations.

    Effect: ROCm refuses the GPU or falls back
    Sure: medium
    Fix: another slot or board; QEMU's pcie-root-port option for guests
    Undo: nothing to undo
    Wrong when: all GPUs are NVIDIA's, whose software does not need them
    Source: PCI Express Base Specification, AtomicOp; AMD ROCm, PCIe atomics
    """
    by_bdf = {device.bdf: device for device in facts.pcie.devices}

    def judge(device: PciDevice) -> Iterator[Verdict]:
        for step in known(device.path):
            config = known(by_bdf[step].config)
            if known(config.atomic_egress_blocked):
                yield fails(f"{step} blocks atomics", device.bdf, evidence=seen("DevCtl2", "EgressBlck+"))
                return
            if config.port in ("upstream", "downstream") and not known(config.atomic_routing):
                yield fails(f"{step} routes no atomics", device.bdf, evidence=seen("DevCap2", "Routing-"))
                return
            if config.port == "root" and not known(config.atomic_completer_64):
                yield fails(
                    f"{step} completes no 64-bit atomics", device.bdf, evidence=seen("DevCap2", "64bit-")
                )
                return
        yield passes("atomics are routed", device.bdf)

    yield from each(
        pci_gpus(facts, 0x1002),
        lambda d: d.bdf,
        judge,
    )


@check("pcie.p2p-write-collapse", P1, NONE)
def collapse(facts: Facts) -> Iterator[Verdict]:
    """Peer writes of two GPUs of one switch to different roots do not collapse.

    Effect: 37 GB/s fall to 2.7 on one platform; reads are not touched, and no host setting was found that helps
    Sure: medium
    Fix: group ranks so that such pairs do not write at once, or another switch firmware
    Undo: nothing to undo
    Wrong when: other switches: only a test of concurrent writes shows it
    Source: rtx6kpro, report on the ASUS ESC8000A-E13P (PEX890xx with EPYC Turin)
    """
    test = facts.p2p.test
    if not is_unknown(test):
        single = [rate for pairs, rate, _ in test.pairings if len(pairs) == 1]
        several = [(rate, line) for pairs, rate, line in test.pairings if len(pairs) > 1]
        low = [
            (rate, line) for rate, line in several if rate < 0.3 * max([*single, *(r for r, _ in several)])
        ]
        if low:
            yield fails(
                "concurrent peer writes collapse", evidence=lines("bandwidth", (line for _, line in low))
            )
            return
    switches = _big_switches(facts)
    if len(gpus(facts) if not is_unknown(facts.driver.gpus) else pci_gpus(facts)) < 3 or not switches:
        yield not_applicable("no GPUs behind several switches")
    elif switches & set(_BROADCOM) or 0x11F8 in switches:
        yield unknown(
            "switches of a kind that did this elsewhere; only `uncork verify` shows it, by writing at once"
        )
    else:
        yield unknown("only `uncork verify` shows it, by writing at once")


def _big_switches(facts: Facts) -> set[int]:
    """Vendors of switches that have GPUs below them."""
    above = {step for d in pci_gpus(facts) if not is_unknown(d.path) for step in d.path[1:]}
    return {d.vendor for d in facts.pcie.devices if d.bdf in above and not is_unknown(d.vendor)}
