"""The host-memory fabric: NUMA node to NUMA node, a process per node."""

import os
import time
from collections.abc import Sequence

from uncork.errors import MeasureFailed
from uncork.gate.exchange import exchange, slot_bytes
from uncork.gate.fabric import (
    AllReduce,
    Counter,
    Device,
    Ended,
    Engine,
    Flagged,
    Link,
    Move,
    Moved,
    Path,
    Register,
)
from uncork.gate.fingerprint import fingerprint
from uncork.gate.hostmem import topology
from uncork.gate.hostmem.rank import FLAG_BYTES
from uncork.gate.ranks import Ranks
from uncork.model.gate import Criterion, Depth, Figure, Fingerprint, Matrix
from uncork.model.unknown import Unknown
from uncork.state import patience

MIB = 1 << 20
SETUP_DEADLINE_S = 60.0 * patience()
READ_SAMPLES = 5
ENOUGH_ROUNDS = 10_000


class HostMemory:
    """The host-memory fabric. Close it (or use `with`): it holds a process and memory per NUMA node."""

    name = "host"
    simulated = False
    engines = (Engine.COPY,)
    # A busy CPU delays a process for seconds; that is no hang.
    deadline_floor_s = 20.0

    def __init__(
        self,
        *,
        depth: Depth = Depth.FULL,
        kernel: str = "auto",
        half_bytes: int | None = None,
        nodes: Sequence[topology.Node] | None = None,
    ) -> None:
        self.nodes = tuple(nodes or topology.nodes())
        self.devices = tuple(
            Device(at, f"node{node.number}", f"node{node.number}", f"{len(node.cpus)} CPUs")
            for at, node in enumerate(self.nodes)
        )
        count = len(self.nodes)
        # More than one node: a copy within a node is what a remote one is compared with, so both are pairs.
        self.pairs = tuple((src, dst) for src in range(count) for dst in range(count))
        self.bandwidth_bytes = half_bytes or stream_bytes(count, depth)
        largest = 64 * MIB if depth is not Depth.QUICK else 2 * MIB + 4
        largest = min(largest, self.bandwidth_bytes // count - slot_bytes(0) - 4096)
        sizes = [(4, 0), (4096, 0), (65536, 0), (2 * MIB, 4), (largest, 0)]
        self.sizes = tuple(dict.fromkeys((size, offset) for size, offset in sizes if size <= largest))
        self._stride = slot_bytes(largest)
        self.half_bytes = self.bandwidth_bytes + slot_bytes(0) + count * self._stride
        self._choice = kernel
        self.kernel = ""
        self.ranks = Ranks("uncork.gate.hostmem.rank", count)
        self._handles: dict[int, int] = {}
        self._start(range(count))
        self.ranks.on_start = self._start

    @property
    def tested(self) -> str:
        cpus = sum(len(node.cpus) for node in self.nodes)
        nodes = f"{len(self.nodes)} NUMA node{'s' * (len(self.nodes) != 1)}"
        return f"Host memory: {nodes}, {cpus} CPUs. No GPU was tested."

    def __enter__(self) -> "HostMemory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, indices: Sequence[int]) -> None:
        for index in indices:
            self._start_one(index)

    def _start_one(self, index: int) -> None:
        node = self.nodes[index]
        start = {
            "op": "start",
            "node": node.number,
            "cpus": node.cpus,
            "half_bytes": self.half_bytes,
            "kernel": self._choice,
            "bind": len(self.nodes) > 1,
        }
        reply = self.ranks.call({index: start}, deadline_s=SETUP_DEADLINE_S)[index]
        if reply.ended is not Ended.OK:
            label = self.devices[index].label
            self.close()
            raise MeasureFailed(
                f"The gate's process for {label} did not start ({reply.says}); nothing was tested.",
                next="uncork verify (tries again; UNCORK_PATIENCE=4 waits longer on a busy host)",
            )
        self.kernel = str(reply.value["kernel"])
        if index in self._handles:
            os.close(self._handles[index])
        self._handles[index] = reply.fds[0]
        total = 2 * self.half_bytes + FLAG_BYTES
        for near in self._handles:
            for far in {index} if near != index else set(self._handles) - {index}:
                request = {"op": "peer", "index": far, "total": total}
                self.ranks.call(
                    {near: request}, deadline_s=SETUP_DEADLINE_S, fds={near: [self._handles[far]]}
                )

    @property
    def does_not_apply(self) -> dict[Criterion, str]:
        why = {
            Criterion.ACCESS: "every process may map host memory; no driver grants it",
            Criterion.DIRECT: "a load from host memory cannot be staged",
            Criterion.LINK: "memory channels report no link state",
        }
        if len(self.nodes) == 1:
            why[Criterion.INTEGRITY_LOADED] = "one node: no second one to load it with"
            why[Criterion.CONCURRENCY] = "one node: its copy already runs on all CPUs at once"
        if sum(len(node.cpus) for node in self.nodes) == 1:
            why[Criterion.ORDERING] = why[Criterion.LATENCY] = "one CPU: nothing runs beside it"
        elif not self.compiled:
            says = "needs a C compiler (cc, gcc or clang); processors order host memory by their architecture"
            why[Criterion.ORDERING] = why[Criterion.LATENCY] = says
        if not self.counters():
            why[Criterion.COUNTERS] = "no EDAC driver counts memory errors here (usual in a virtual machine)"
        return why

    def path(self, src: int, dst: int) -> Path:
        one, other = self.nodes[src], self.nodes[dst]
        if src == dst:
            return Path("numa-local", (f"{self.devices[src].label} memory",))
        components = [f"{self.devices[src].label} memory", f"{self.devices[dst].label} memory"]
        if one.socket != other.socket:
            components.insert(1, f"socket link {one.socket}→{other.socket}")
        return Path("numa-remote", tuple(components))

    def capacity_gb_s(self, component: str) -> float | None:
        return None

    def preconditions(self) -> tuple[str, ...]:
        return ()

    def access(self) -> dict[tuple[int, int], dict[str, bool | Unknown]]:
        return {}

    def move(self, moves: Sequence[Move], *, deadline_s: float) -> tuple[Moved, ...]:
        # Unchecked moves use the whole half, beyond what caches hold; one slot is as large as that half then.
        timed = all(move.key is None for move in moves)
        stride = 0 if timed and len(moves) == 1 else self._stride
        return exchange(self.ranks, moves, stride=stride, deadline_s=deadline_s)

    def flag(self, src: int, dst: int, *, rounds: int, deadline_s: float) -> Flagged | Unknown:
        if not self.compiled:
            return Unknown("flags need a C compiler (cc, gcc or clang on PATH)")
        limit_s = deadline_s * 0.8
        ends = dict.fromkeys((src, dst))
        if src == dst and len(self.nodes[src].cpus) < 2:
            return Unknown(f"{self.devices[src].label} has a single CPU that we may use", absent=True)
        self.ranks.call({end: {"op": "clear_flags"} for end in ends}, deadline_s=deadline_s)
        requests = {
            end: {
                "op": "flag",
                "near": end,
                "far": dst if end == src else src,
                "first": end == src,
                "rounds": rounds,
                "limit_s": limit_s,
            }
            for end in ends
        }
        replies = self.ranks.call(requests, deadline_s=deadline_s)
        for end in ends:
            if replies[end].ended is not Ended.OK:
                return Flagged(ended=replies[end].ended, says=replies[end].says)
        stale = sum(int(replies[end].value["stale"]) for end in ends)
        done = int(replies[src].value["rounds"])
        if done < min(rounds, ENOUGH_ROUNDS):
            # Both sides need a CPU at the same time; on a busy machine they may not get one, which is no hang, and
            # the order of host memory is the processor's: nothing that a setting could break.
            reason = f"the CPUs were too busy for a ping-pong: {done} of {rounds} rounds in {limit_s:.0f} s"
            return Unknown(reason, absent=True)
        return Flagged(one_way_ns=float(replies[src].value["ns"]), rounds=done, stale=stale)

    def counters(self) -> tuple[Counter, ...]:
        from uncork.gate.hostmem.extra import edac_counters

        return edac_counters()

    def registers(self) -> tuple[Register, ...]:
        return ()

    def links(self, pairs: Sequence[tuple[int, int]]) -> tuple[Link, ...] | Unknown:
        return ()

    def all_reduce(self, sizes: Sequence[int], *, rounds: int) -> AllReduce | Unknown:
        return Unknown("no GPU: no collective library to ask")

    def extra_figures(self, depth: Depth) -> tuple[Figure, ...]:
        from uncork.gate.hostmem.extra import wake_ups

        return (self.read_bandwidth(), *(() if depth is Depth.QUICK else wake_ups(self)))

    def extra_matrices(self, depth: Depth) -> tuple[Matrix, ...]:
        from uncork.gate.hostmem.extra import matrices

        return () if depth is Depth.QUICK else matrices(self)

    @property
    def compiled(self) -> bool:
        """Whether latency figures can be had."""
        return self.kernel.startswith("compiled")

    def read_bandwidth(self) -> Figure:
        """All CPUs of all nodes read their own node's memory at once: GB/s, best sustained of five."""
        size, samples = self.bandwidth_bytes, []
        loops = 1
        for _ in range(READ_SAMPLES):
            requests = {
                index: {"op": "read", "size": size, "loops": loops} for index in range(len(self.nodes))
            }
            replies = self.ranks.call(requests, deadline_s=SETUP_DEADLINE_S)
            if any(reply.ended is not Ended.OK for reply in replies.values()):
                continue
            longest = max(float(reply.value["seconds"]) for reply in replies.values())
            samples.append(size * loops * len(self.nodes) / longest / 1e9)
        cpus = sum(len(node.cpus) for node in self.nodes)
        how = f"{cpus} threads read {size / 1e6:.0f} MB a node; second best of {len(samples)}; {self.kernel}"
        return Figure("read-bandwidth", second_best(samples), "GB/s", tuple(samples), how)

    def fingerprint(self) -> Fingerprint:
        return fingerprint("host", tuple(device.bus_id for device in self.devices), self.kernel)

    def context(self, pairs: Sequence[tuple[int, int]]) -> dict[str, str]:
        return {"load average": " ".join(f"{load:.2f}" for load in os.getloadavg())}

    def notes(self) -> tuple[str, ...]:
        return ()

    def now_s(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self.ranks.close()
        for fd in self._handles.values():
            os.close(fd)
        self._handles.clear()


def second_best(samples: Sequence[float]) -> float | None:
    """The second largest: interference only ever lowers a bandwidth, and one glitch must not be believed."""
    ranked = sorted(samples, reverse=True)
    return ranked[min(1, len(ranked) - 1)] if ranked else None


def stream_bytes(count: int, depth: Depth) -> int:
    """Bytes of one timed copy on each of `count` nodes.

    Source and destination together are four times the last-level cache, STREAM's rule for its arrays
    (stream.c, McCalpin), as far as a quarter of the free memory allows.
    """
    wanted = max(64 * MIB, 2 * topology.last_level_cache_bytes() // count)
    if depth is Depth.QUICK:
        wanted = min(wanted, 256 * MIB)
    return max(16 * MIB, min(wanted, topology.available_bytes() // (8 * count))) // 4096 * 4096
