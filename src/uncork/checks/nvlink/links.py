"""NVLinks between GPUs."""

import re
from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    P0,
    P1,
    SERVICE_RESTART,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import (
    each,
    expected_nvlinks,
    generation,
    gpus,
    named,
    no_nvidia,
    tensor_parallel,
    visible,
)
from uncork.checks.hosts import known, seen
from uncork.model.facts import Facts
from uncork.model.facts.nvlink import Links
from uncork.model.unknown import UnknownValue, is_unknown

# GB/s of one link and direction by generation. Source: NVIDIA data sheets; nvidia-smi prints 25.781 for NVLink 2
# and 3's 25 GB/s (two links of 12.5), 26.562 for NVLink 4, 53.125 for NVLink 5.
_SPEED_GB_S = {
    "volta": 25.0,
    "ampere": 25.0,
    "hopper": 25.0,
    "blackwell": 50.0,
    "pascal": 20.0,
    "turing": 25.0,
}


SLOW_QUERY_S = 1.0


@check("nvlink.link-state", P0, FIRMWARE)
def link_state(facts: Facts) -> Iterator[Verdict]:
    """Every NVLink that the product has is up.

    Effect: NCCL uses fewer links, or PCIe
    Sure: high
    Fix: reset the GPU; seat the bridge; look at the fabric manager
    Undo: nothing to undo
    Wrong when: bridge slots without a bridge; clouds that switch links off by design; MIG and confidential modes
    Source: NVML API reference, NvLink state; NVIDIA data sheets; Azure health checks
    """
    slow = [seconds for seconds in facts.nvlink.query_times_s if seconds >= SLOW_QUERY_S]
    if slow:
        yield fails(
            f"a question about the links took {max(slow):g} s: links that are half connected are tried again and again",
            evidence=seen("timed query", f"{max(slow):g} s"),
        )
        return
    links = facts.nvlink.gpus
    if is_unknown(links):
        yield from _without_links(facts, links.reason)
        return
    most = max((len(links_up(one)) for one in links), default=0)
    yield from each(links, lambda one: one.subject, lambda one: _state(one, most))


def _without_links(facts: Facts, reason: str) -> Iterator[Verdict]:
    timed = any("NVLINK query" in line for line in facts.driver.words.splitlines())
    levels = facts.p2p.levels
    cells = (
        []
        if is_unknown(levels)
        else [c for row in levels for c in row if c is not None and not is_unknown(c)]
    )
    fabric = [name for name in named(facts) if expected_nvlinks(name) is not None]
    if fabric and len(cells) > 1 and not any(cell.startswith("NV") for cell in cells):
        shown = seen("topo -m", ", ".join(sorted(set(cells))))
        yield fails(
            f"{fabric[0]} has {expected_nvlinks(fabric[0])} NVLinks, and no pair uses one", evidence=shown
        )
    elif any(cell.startswith("NV") for cell in cells):
        yield unknown(
            "pairs are joined by NVLink; attach `nvidia-smi nvlink -s` to see whether every link is up"
        )
    elif (why := no_nvlink(facts)) and not timed:
        yield not_applicable(why)
    else:
        raise UnknownValue(f"{reason}: attach `nvidia-smi nvlink -s`")


# Products that take an NVLink bridge.
_BRIDGEABLE = re.compile(
    r"RTX 20[78]0|RTX 3090|A6000|A5000|A40\b|A100.*PCI|A30\b|H100.*(?:PCI|NVL)|H200.*NVL|TITAN RTX"
    r"|Quadro RTX [568]|TITAN V|GV100|GP100"
)


def no_nvlink(facts: Facts) -> str:
    """Why questions about NVLink do not arise, or an empty text (also where that is not known)."""
    if reason := no_nvidia(facts):
        return reason
    cards = named(facts)
    if cards and all(expected_nvlinks(name) is None and not _BRIDGEABLE.search(name) for name in cards):
        return f"{cards[0]} has no NVLink"
    return ""


def links_up(one: Links) -> list[int]:
    return [link.number for link in one.links if not is_unknown(link.active) and link.active]


def _state(one: Links, most: int) -> Iterator[Verdict]:
    up = links_up(one)
    if one.links and all(is_unknown(link.active) for link in one.links):
        raise UnknownValue("only counters of the links were given: attach `nvidia-smi nvlink -s`")
    down = [link.number for link in one.links if not is_unknown(link.active) and not link.active]
    expected = expected_nvlinks(one.name)
    shown = seen("nvlink -s", f"up {up}, down {down}")
    if expected is not None and len(up) < expected:
        yield fails(f"{len(up)} of {expected} links are up", one.subject, evidence=shown)
    elif expected is None and len(up) < most:
        yield fails(
            f"{len(up)} links are up, {most} on another GPU", one.subject, priority=P1, evidence=shown
        )
    elif expected is None and down and not up:
        yield not_applicable("no bridge", one.subject)
    elif expected is None and down and re.search(r"NVL|PCI", one.name):
        yield passes(f"{len(up)} links are up; the others have no bridge", one.subject)
    elif expected is None and down:
        yield unknown(
            f"{len(down)} links are down, and how many this product has is not known: {one.name}", one.subject
        )
    elif up:
        yield passes(f"all {len(up)} links are up", one.subject)


@check("nvlink.link-speed", P1, FIRMWARE)
def link_speed(facts: Facts) -> Iterator[Verdict]:
    """Links run at the speed of their generation, all alike.

    Effect: less bandwidth
    Sure: high
    Fix: reset; return the baseboard
    Undo: nothing to undo
    Wrong when: a bandwidth mode was chosen (nvlink.low-power)
    Source: NVML API reference, NVML_FI_DEV_NVLINK_SPEED_MBPS; NVIDIA data sheets
    """

    def judge(one: Links) -> Iterator[Verdict]:
        speeds = {
            link.speed_gb_s
            for link in one.links
            if link.number in links_up(one) and not is_unknown(link.speed_gb_s)
        }
        # GA102 and GA104 boards run four links of 14 GB/s, unlike GA100's twelve of 25.
        bridged = re.search(r"A6000|A5000|A5500|A4500|A40\b|RTX 3090", one.name)
        nominal = 14.0 if bridged else _SPEED_GB_S.get(generation(one.name), 0.0)
        if not links_up(one):
            return
        if not speeds:
            raise UnknownValue("the links' speed is not told")
        if max(speeds) - min(speeds) > 0.5 or min(speeds) < 0.9 * nominal:
            yield fails(
                f"links run at {min(speeds):g} to {max(speeds):g} GB/s",
                one.subject,
                evidence=seen("nvlink -s", sorted(speeds)),
            )
        else:
            yield passes(f"links run at {max(speeds):g} GB/s", one.subject)

    yield from each(_links(facts), lambda one: one.subject, judge)


def _links(facts: Facts) -> tuple[Links, ...]:
    if is_unknown(facts.nvlink.gpus) and no_nvlink(facts):
        return ()
    return tuple(one for one in known(facts.nvlink.gpus) if one.links)


@check("nvlink.error-counters", P1, FIRMWARE)
def error_counters(facts: Facts) -> Iterator[Verdict]:
    """Links count no replays, recoveries or checksum errors.

    Effect: retries, then Xid 74 or 149
    Sure: high
    Fix: reseat the bridge or baseboard
    Undo: nothing to undo
    Wrong when: a few since a boot months ago
    Source: NVML API reference, NvLink error counters
    """

    def judge(one: Links) -> Iterator[Verdict]:
        counts = {}
        for link in one.links:
            for name, value in (
                ("replay", link.replay_errors),
                ("recovery", link.recovery_errors),
                ("CRC", link.crc_errors),
            ):
                if not is_unknown(value):
                    counts[f"{name} of link {link.number}"] = value
        if not counts:
            raise UnknownValue("no error counters were read: attach `nvidia-smi nvlink -e`")
        wrong = {name: count for name, count in counts.items() if count > (0 if "recovery" in name else 100)}
        if wrong:
            name, count = max(wrong.items(), key=lambda item: item[1])
            yield fails(f"{count} errors: {name}", one.subject, evidence=seen("nvlink -e", wrong))
        else:
            yield passes("no link errors to speak of", one.subject)

    # A print of the counters alone does not tell which links are up; one that says "down" has nothing to count.
    shown = (
        one for one in _links(facts) if links_up(one) or any(is_unknown(link.active) for link in one.links)
    )
    yield from each(shown, lambda one: one.subject, judge)


@check("nvlink.topology-vs-tp", P1, SERVICE_RESTART)
def bridges(facts: Facts) -> Iterator[Verdict]:
    """Ranks that talk most share a bridge.

    Effect: half of an all-reduce goes over PCIe
    Sure: high
    Fix: order CUDA_VISIBLE_DEVICES so that bridged GPUs are neighbours
    Undo: the former order
    Wrong when: all GPUs are joined by NVSwitch
    Source: NCCL user guide, troubleshooting; NVML API reference, NvLink remote device
    """
    levels = facts.p2p.levels
    if is_unknown(levels) and no_nvidia(facts):
        yield not_applicable("no NVIDIA GPU")
        return
    linked = [
        (a, b)
        for a, row in enumerate(known(levels))
        for b, cell in enumerate(row)
        if cell is not None and not is_unknown(cell) and cell.startswith("NV")
    ]
    count = len(known(levels))
    if not linked or len(linked) == count * (count - 1):
        yield not_applicable("no bridges between some of the GPUs only")
        return
    for server in known(facts.engine.servers):
        group = [gpu.index for gpu in visible(server, gpus(facts))]
        subject = f"{server.kind} ({server.pid})"
        if tensor_parallel(server) < 2 or len(group) < 2:
            continue
        pairs = list(zip(group[::2], group[1::2], strict=False))
        apart = [pair for pair in pairs if pair not in linked]
        if apart:
            yield fails(
                f"ranks on GPUs {apart[0][0]} and {apart[0][1]} share no bridge",
                subject,
                evidence=seen("topo -m", linked),
            )
        else:
            yield passes("bridged GPUs are neighbours", subject)
