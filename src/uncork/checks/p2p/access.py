"""Whether GPUs reach each other: what the driver claims and what tests showed."""

import re
from collections.abc import Iterator

from uncork.checks import FIRMWARE, NONE, P0, P1, P2, Verdict, check, fails, not_applicable, passes, unknown
from uncork.checks.engine.servers import sign
from uncork.checks.gpus import closed_to_peers, lines, named, pci_gpus, widest, wrong_data
from uncork.checks.hosts import known, seen
from uncork.checks.pcie.links import LANE_GB_S
from uncork.model.facts import Facts
from uncork.model.facts.p2p import Matrix
from uncork.model.unknown import UnknownValue, is_unknown

_WORDS = {
    "chipset": "the chipset does not allow it (in a guest: the emulated one)",
    "gpu": "the product does not allow it",
    "topology": "the way between them does not allow it",
    "regkey": "a registry key forbids it",
    "not-supported": "not supported",
    "unknown": "the driver does not say",
}


def single(facts: Facts) -> str:
    """Why questions about pairs of GPUs do not arise, or an empty text."""
    if not is_unknown(facts.driver.gpus):
        count = len(facts.driver.gpus)
        return "" if count > 1 else "fewer than two GPUs"
    if not is_unknown(facts.pcie.devices) and facts.pcie.source == "sysfs":
        return "" if len(pci_gpus(facts)) > 1 else "fewer than two GPUs"
    return ""


def refused(matrix: Matrix) -> dict[str, list[tuple[int, int]]]:
    """Status word → pairs that have it, of all that are not ok."""
    found: dict[str, list[tuple[int, int]]] = {}
    for a, row in enumerate(matrix):
        for b, cell in enumerate(row):
            if cell is not None and not is_unknown(cell) and cell != "ok":
                found.setdefault(cell, []).append((a, b))
    return found


@check("p2p.status-matrix", P1, NONE, unless=single)
def status(facts: Facts) -> Iterator[Verdict]:
    """The driver grants peer access between the GPUs of a group.

    Effect: decides between peer access and a way through host memory
    Sure: high
    Fix: by reason: chipset: the host's hypervisor; product: none; topology: another group; key: take it out
    Undo: nothing to undo
    Wrong when: the product has none by design (GeForce over PCIe), or pairs of different sockets on old boards
    Source: NVML API reference, P2P status; NCCL user guide; CUDA programming guide, peer access
    """
    matrix = facts.p2p.read if not is_unknown(facts.p2p.read) else facts.p2p.write
    if is_unknown(matrix):
        yield from _from_test(facts, matrix.reason)
        return
    wrong = refused(matrix)
    if not wrong:
        yield passes("the driver grants every pair (a claim: only a data test proves it)")
        return
    cards = named(facts)
    by_design = bool(cards) and all(closed_to_peers(name) for name in cards)
    for word, pairs in wrong.items():
        shown = seen("topo -p2p", f"{word}: {pairs[:6]}")
        across = all(_sockets_apart(facts, *pair) for pair in pairs)
        if word in ("gpu", "not-supported", "chipset") and by_design:
            yield fails(
                f"no peer access on {cards[0]}, by design: no setting brings it", priority=P2, evidence=shown
            )
        elif across and word in ("topology", "not-supported"):
            yield fails("no peer access across sockets: normal on such boards", priority=P2, evidence=shown)
        else:
            spread = not is_unknown(facts.engine.servers) and widest(facts) > 1
            words = f"{len(pairs)} of the pairs have no peer access: {_WORDS.get(word, word)}"
            # A product's refusal is by design; the others matter where a model is spread, or may be.
            serious = spread or (
                word in ("chipset", "regkey", "topology") and is_unknown(facts.engine.servers)
            )
            yield fails(words, priority=P1 if serious else P2, evidence=shown)


def _sockets_apart(facts: Facts, a: int, b: int) -> bool:
    levels = facts.p2p.levels
    if is_unknown(levels) or a >= len(levels) or b >= len(levels[a]):
        return False
    cell = levels[a][b]
    return cell is not None and not is_unknown(cell) and cell == "SYS"


def _from_test(facts: Facts, reason: str) -> Iterator[Verdict]:
    """What a peer test's own access matrix says, where nvidia-smi's was not given."""
    test = facts.p2p.test
    cards = named(facts)
    if is_unknown(test) and (refusals := sign(facts, "peer-refused")):
        closed = bool(cards) and all(closed_to_peers(name) for name in cards)
        says = (
            f"no peer access on {cards[0]}, by design: no setting brings it"
            if closed
            else "CUDA refuses peer access"
        )
        yield fails(says, priority=P2 if closed else P1, evidence=lines("log", refusals))
        return
    if is_unknown(test):
        raise UnknownValue(f"{reason}: attach `nvidia-smi topo -p2p r` and `-p2p w`")
    if test.access and any(test.access.values()):
        yield passes("some pairs have peer access; the others may stand on another socket")
        return
    cards = (*test.names.values(), *cards)
    if cards and all(closed_to_peers(name) for name in cards):
        yield fails(f"no peer access on {cards[0]}, by design: no setting brings it", priority=P2)
    elif test.access:
        yield fails("no pair has peer access", evidence=seen("peer test", "CANNOT Access Peer Device"))
    elif test.bandwidth and any("P2P=Disabled" in title for title, _ in test.bandwidth):
        yield unknown(
            "bandwidth alone does not tell whether peers are reached; attach `nvidia-smi topo -p2p r` and the models"
        )
    else:
        raise UnknownValue(f"{reason}: attach `nvidia-smi topo -p2p r` and `-p2p w`")


@check("p2p.functional-oneway", P0, NONE)
def functional(facts: Facts) -> Iterator[Verdict]:
    """Data that one GPU writes into another arrives.

    Effect: wrong results without a message, or a hang at the first collective
    Sure: high
    Fix: the cause is an IOMMU, ACS, BAR1 or a patched driver; until then NCCL_P2P_DISABLE=1 and no custom all-reduce
    Undo: nothing to undo
    Wrong when: a round trip passed: a mirror mapping passes it and delivers nothing
    Source: vLLM issue 47544; PyTorch issue 84803; club-3090 peer notes
    """
    if wrong := wrong_data(facts):
        yield fails("peer data does not arrive", evidence=lines("copy test", wrong))
        return
    if reason := single(facts):
        yield not_applicable(reason)
        return
    test = facts.p2p.test
    if not is_unknown(test) and test.passed:
        yield unknown(
            "a copy test passed one way round; `uncork verify` checks every ordered pair at its own end"
        )
    else:
        yield unknown(
            "not tested: `uncork verify` writes from each GPU into each other and reads at the far end"
        )


@check("p2p.bandwidth", P1, NONE)
def bandwidth(facts: Facts) -> Iterator[Verdict]:
    """Pairs reach the bandwidth of the slower link on their way.

    Effect: shows redirects, translation and narrow uplinks in one figure
    Sure: high
    Fix: see pcie.*
    Undo: nothing to undo
    Wrong when: pairs of different sockets, which reach less
    Source: nvbandwidth; Azure health checks; rtx6kpro measurements
    """
    test = facts.p2p.test
    if not is_unknown(test):
        single_rates = [
            (rate, line) for pairs, rate, line in test.pairings if len(pairs) <= 2 and not _concurrent(line)
        ]
        rates = [rate for rate, _ in single_rates]
        if len(rates) > 1 and min(rates) < 0.7 * max(rates):
            shown = [line for rate, line in single_rates if rate < 0.7 * max(rates)]
            yield fails(
                f"{min(rates):g} GB/s for one pair, {max(rates):g} for another",
                evidence=lines("bandwidth", shown),
            )
            return
        if slow := _slow_gpu(test.bandwidth):
            yield fails(slow, evidence=seen("p2pBandwidthLatencyTest", slow))
            return
        if slow := _staged(test.bandwidth, test.access):
            yield fails(slow, evidence=seen("p2pBandwidthLatencyTest", slow))
            return
    if reason := single(facts):
        yield not_applicable(reason)
        return
    best = _link_rate(facts)
    yield unknown(
        "not measured: `uncork verify` measures each pair"
        + (f"; the link can carry {best:.0f} GB/s" if best else "")
    )


Tables = tuple[tuple[str, dict[tuple[int, int], float]], ...]


def _slow_gpu(tables: Tables) -> str:
    """A GPU whose best pair is far below everybody else's: its own link lost lanes or a generation."""
    for title, cells in tables:
        if "Bandwidth" not in title or "Disabled" in title:
            continue
        best: dict[int, float] = {}
        for (a, b), rate in cells.items():
            if a != b:
                best[a] = max(rate, best.get(a, 0.0))
        if len(best) < 3:
            continue
        middle = sorted(best.values())[len(best) // 2]
        slow = {gpu: rate for gpu, rate in best.items() if rate < 0.6 * middle}
        if slow and len(slow) < len(best) / 2:
            gpu, rate = next(iter(slow.items()))
            return f"GPU {gpu} reaches {rate:g} GB/s at best, the others {middle:g}"
    return ""


def _staged(tables: Tables, access: dict[tuple[int, int], bool]) -> str:
    """Pairs that have peer access and take the time of a way through host memory (more than 8 us for a write)."""
    for title, cells in tables:
        if "Latency" not in title or "Enabled" not in title:
            continue
        slow = [
            (pair, us) for pair, us in cells.items() if pair[0] != pair[1] and access.get(pair) and us > 8.0
        ]
        if slow:
            (a, b), us = slow[0]
            return f"GPU {a} to GPU {b} takes {us:g} us with peer access: it goes through host memory"
    return ""


def _concurrent(line: str) -> bool:
    return bool(re.search(r"\+|&|concurrent|together|at once", line))


def _link_rate(facts: Facts) -> float:
    """GB/s of the narrowest GPU link; 0 where that is not known."""
    if is_unknown(facts.pcie.devices):
        return 0.0
    rates = [
        LANE_GB_S.get(d.max_speed_gt_s, 0.0) * d.max_width
        for d in pci_gpus(facts)
        if not is_unknown(d.max_speed_gt_s) and not is_unknown(d.max_width)
    ]
    return min(rates, default=0.0)


@check("p2p.h2d-d2h-bandwidth", P1, NONE)
def host_bandwidth(facts: Facts) -> Iterator[Verdict]:
    """Copies between host and GPU reach the link's bandwidth.

    Effect: shows width, speed, uncore and NUMA faults in one figure
    Sure: high
    Fix: see pcie.* and numa.*
    Undo: nothing to undo
    Wrong when: the buffer lies on the other socket
    Source: Azure health checks; DCGM diagnostics
    """
    if not is_unknown(facts.driver.gpus) and not facts.driver.gpus:
        yield not_applicable("no GPU")
        return
    best = _link_rate(facts)
    yield unknown(
        "not measured: `uncork verify` measures it"
        + (f"; the link can carry {best:.0f} GB/s" if best else "")
    )


@check("p2p.reads-unsupported", P1, NONE, unless=single)
def reads(facts: Facts) -> Iterator[Verdict]:
    """Pairs that may write their peer may read it too.

    Effect: an all-reduce that pulls hangs or fails
    Sure: high
    Fix: kernels that push; NCCL_P2P_READ_ENABLE=0
    Undo: unset it
    Wrong when: never
    Source: open-gpu-kernel-modules thread 1253
    """
    read, write = known(facts.p2p.read), known(facts.p2p.write)
    wrong = [
        (a, b)
        for a, row in enumerate(write)
        for b, cell in enumerate(row)
        if cell == "ok" and a < len(read) and b < len(read[a]) and read[a][b] not in ("ok", None)
    ]
    if wrong:
        yield fails(f"{len(wrong)} pairs may write and not read", evidence=seen("topo -p2p", wrong[:6]))
    else:
        yield passes("reads and writes are granted alike")


@check("p2p.amd-links", P1, FIRMWARE)
def amd_links(facts: Facts) -> Iterator[Verdict]:
    """AMD GPUs of one platform are joined by xGMI, each with each.

    Effect: which way RCCL takes
    Sure: medium
    Fix: none on the host
    Undo: nothing to undo
    Wrong when: cards without a bridge, which have PCIe only
    Source: Linux drivers/gpu/drm/amd/amdkfd, topology; AMD Instinct MI300X system optimization
    """
    links = facts.p2p.amd_links
    if is_unknown(links) and links.absent:
        yield not_applicable("no AMD GPU under KFD")
        return
    pairs = {(link.source, link.target): link.kind for link in known(links)}
    nodes = {node for pair in pairs for node in pair}
    if len(nodes) < 2:
        yield not_applicable("fewer than two AMD GPUs")
        return
    joined = {pair for pair, kind in pairs.items() if kind == 11}
    if not joined:
        yield passes("PCIe between AMD GPUs: no xGMI on these cards")
    elif len(joined) < len(nodes) * (len(nodes) - 1):
        yield fails(
            f"xGMI joins {len(joined)} of {len(nodes) * (len(nodes) - 1)} ordered pairs",
            evidence=seen("io_links", sorted(joined)[:8]),
        )
    else:
        yield passes("xGMI joins every pair")
