"""Figures of host memory beside the copies: load latency, core to core, wake-up from idle, and EDAC counters."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from uncork.gate.fabric import Counter, Ended
from uncork.gate.hostmem import topology
from uncork.model.gate import Cell, Figure, Matrix
from uncork.model.unknown import Unknown

if TYPE_CHECKING:
    from uncork.gate.hostmem.fabric import HostMemory

EDAC = Path("/sys/devices/system/edac/mc")
# Enough to show each cache domain of a large machine, and done within two seconds.
MOST_CORES = 24
CORE_ROUNDS, CHASE_STEPS = 2000, 400_000
# Short, medium and long sleeps: deeper idle states are entered when a longer sleep is expected.
IDLE_US, WAKE_COUNT = (50, 1000, 10_000), 9
DEADLINE_S = 30.0


def edac_counters(root: Path = EDAC) -> tuple[Counter, ...]:
    """Memory errors that the kernel counted (Documentation/admin-guide/RAS): correctable and not."""
    found = []
    for folder in sorted(root.glob("mc[0-9]*")):
        for name, kind in (("ue_count", "ecc"), ("ce_count", "correctable")):
            try:
                value: int | Unknown = int((folder / name).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                value = Unknown(f"{folder / name}: {error}")
            found.append(Counter(f"memory controller {folder.name}", kind, value))
    return tuple(found)


def matrices(host: "HostMemory") -> tuple[Matrix, ...]:
    """Load latency from every node's CPUs to every node's memory, and flag latency between cores; C only."""
    if not host.compiled:
        return ()
    return tuple(matrix for matrix in (_load_latency(host), _core_to_core(host)) if matrix is not None)


def _load_latency(host: "HostMemory") -> Matrix | None:
    """Dependent loads over a buffer that no cache holds, as a pointer chase sees them."""
    labels = tuple(device.label for device in host.devices)
    beyond_caches = max(64 << 20, topology.last_level_cache_bytes() * 5 // 4)
    size = 1 << (min(2 * host.half_bytes, 2 * beyond_caches).bit_length() - 1)
    cells = []
    for near in range(len(labels)):
        for far in range(len(labels)):
            ask = {"op": "chase", "target": far, "size": size, "steps": CHASE_STEPS}
            reply = host.ranks.call({near: ask}, deadline_s=DEADLINE_S)[near]
            if reply.ended is Ended.OK:
                samples = tuple(reply.value["samples_ns"])
                cells.append(Cell(near, far, min(samples), samples))
    return Matrix("load latency", "ns", labels, tuple(cells), higher_is_better=False) if cells else None


def _core_to_core(host: "HostMemory") -> Matrix | None:
    """One-way flag latency between cores, each pair once; a sample of cores on a large machine."""
    cpus = spread(sorted(cpu for node in host.nodes for cpu in node.cpus), MOST_CORES)
    cells = []
    for one, cpu in enumerate(cpus):
        for two in range(one + 1, len(cpus)):
            ask = {"op": "core_flag", "cpu_a": cpu, "cpu_b": cpus[two], "rounds": CORE_ROUNDS, "limit_s": 5.0}
            replies = [host.ranks.call({0: ask}, deadline_s=DEADLINE_S)[0] for _ in range(3)]
            samples = tuple(
                float(reply.value["ns"])
                for reply in replies
                if reply.ended is Ended.OK and reply.value["rounds"] == CORE_ROUNDS
            )
            if samples:
                # Both directions of a pair are one ping-pong; the least disturbed of three is the machine's.
                cells += [Cell(one, two, min(samples), samples), Cell(two, one, min(samples), samples)]
    labels = tuple(f"cpu{cpu}" for cpu in cpus)
    return (
        Matrix("core to core, one way", "ns", labels, tuple(cells), higher_is_better=False) if cells else None
    )


def spread(items: Sequence[int], most: int) -> list[int]:
    """At most `most` of the items, evenly spaced, the first and last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(at * (len(items) - 1) / (most - 1))] for at in range(most)]


def wake_ups(host: "HostMemory") -> tuple[Figure, ...]:
    """Microseconds from a write to a pipe until the thread that slept on it runs, by how long it had slept."""
    if not host.compiled:
        return ()
    cpus = host.nodes[0].cpus
    found = []
    for idle_us in IDLE_US:
        ask = {"op": "wake", "cpu": cpus[-1], "waker": cpus[0], "idle_us": idle_us, "count": WAKE_COUNT}
        reply = host.ranks.call({0: ask}, deadline_s=DEADLINE_S)[0]
        samples = tuple(reply.value.get("samples_us", ())) if reply.ended is Ended.OK else ()
        if samples:
            how = f"cpu{cpus[0]} wakes a thread on cpu{cpus[-1]} by a pipe, median of {len(samples)}"
            found.append(
                Figure(f"wake-up after {idle_us} us idle", statistics.median(samples), "us", samples, how)
            )
    return tuple(found)
