"""The CUDA fabric: a process per GPU, memory shared by legacy IPC and by VMM handle."""

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from uncork.errors import MeasureFailed, MissingExtra
from uncork.gate import caches
from uncork.gate.crosscheck import cross_check
from uncork.gate.cuda import collective, counters, gpus, registers, topology
from uncork.gate.cuda.context import about
from uncork.gate.exchange import exchange, slot_bytes
from uncork.gate.fabric import (
    AllReduce,
    Counter,
    Device,
    Direction,
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
from uncork.gate.ranks import Ranks
from uncork.host import Host
from uncork.host.live import LiveHost
from uncork.model.gate import Criterion, Depth, Figure, Fingerprint, Matrix
from uncork.model.unknown import Unknown, is_unknown
from uncork.state import patience

MIB = 1 << 20
PROGRAM = "uncork.gate.cuda.rank"
PROBE_DEADLINE_S = 30.0 * patience()
SETUP_DEADLINE_S = 60.0 * patience()
LOADED_BYTES = 2 * MIB + 4
LINK_WATCH_S = 0.05
FLAG_BYTES = 64 * 1024
IPC, VMM = "ipc", "vmm"
# NCCL's cuMem path and symmetric memory use VMM handles, older code legacy IPC: each engine prefers one of them,
# so that both carry data.
PREFERS = {Engine.COPY: (IPC, VMM), Engine.KERNEL: (VMM, IPC)}


def device_count(env: Mapping[str, str] | None = None) -> int | Unknown:
    """How many CUDA devices a process sees here, asked in a process of its own; Unknown with the reason."""
    ranks = Ranks(PROGRAM, 1, env=env)
    try:
        reply = ranks.call({0: {"op": "probe"}}, deadline_s=PROBE_DEADLINE_S)[0]
    finally:
        ranks.close()
    return len(reply.value["devices"]) if reply.ended is Ended.OK else Unknown(reply.says)


class CudaFabric:
    """The GPUs of this host. Close it (or use `with`): it holds a process and some hundred MB on every GPU.

    `devices` restricts it to these CUDA ordinals; `nccl` is the server's libnccl; `changed_s` is when this host was
    last changed (else its boot), for servers' stale P2P caches. Raises `MissingExtra`, `MeasureFailed`.
    """

    name = "cuda"
    simulated = False
    engines = (Engine.COPY, Engine.KERNEL)

    def __init__(
        self,
        *,
        depth: Depth = Depth.FULL,
        host: Host | None = None,
        devices: Sequence[int] | None = None,
        nccl: str | Unknown | None = None,
        env: Mapping[str, str] | None = None,
        changed_s: float | None = None,
        deadline_floor_s: float = 1.0,
    ) -> None:
        self._host = host or LiveHost()
        self._deadline_floor_s = deadline_floor_s
        self._nccl = (
            nccl if nccl is not None else Unknown("no NCCL library of a server was found", absent=True)
        )
        self._granted: dict[tuple[int, int], dict[str, bool]] = {}
        self._handles: dict[int, dict[str, Any]] = {}
        self._samples = 0
        self._changed_s = changed_s
        self._checked: tuple[tuple[Matrix, ...], tuple[Figure, ...], tuple[str, ...]] = ((), (), ())
        # Read before anything of ours runs on them.
        self._gpus = gpus.read(self._host)
        self.ranks = Ranks(PROGRAM, 1, env=env)
        try:
            self._set_up(depth, devices)
        except BaseException:
            self.close()
            raise

    def _set_up(self, depth: Depth, wanted: Sequence[int] | None) -> None:
        # The coordinator itself never loads the driver: a call that hangs in it could not be ended.
        probed = self.ranks.call({0: {"op": "probe"}}, deadline_s=PROBE_DEADLINE_S)[0]
        if probed.ended is not Ended.OK:
            raise _unusable(probed.says)
        version = int(probed.value["driver"])
        self.driver = f"CUDA driver {version // 1000}.{version % 1000 // 10}"
        self._places, self.devices, self._ordinals = self._arrange(probed.value["devices"], wanted)
        count = len(self.devices)
        self.pairs = tuple((i, j) for i in range(count) for j in range(count) if i != j)
        self.ranks.grow(count)
        self._measure_out(count, depth)
        self._start(range(count))
        self.ranks.on_start = self._start

    def _arrange(
        self, found: Sequence[dict[str, str]], wanted: Sequence[int] | None
    ) -> tuple[list[topology.Place | Unknown], tuple[Device, ...], list[int]]:
        ordinals = list(range(len(found))) if wanted is None else list(wanted)
        places = {ordinal: topology.place(self._host, found[ordinal]["bus_id"]) for ordinal in ordinals}
        order = [ordinals[at] for at in topology.order([places[ordinal] for ordinal in ordinals])]
        devices = tuple(
            Device(at, f"gpu{ordinal}", found[ordinal]["bus_id"], found[ordinal]["name"])
            for at, ordinal in enumerate(order)
        )
        return [places[ordinal] for ordinal in order], devices, order

    def _measure_out(self, count: int, depth: Depth) -> None:
        """Sizes that fit beside a running server: two memories of two halves in a quarter of what is free."""
        replies = self.ranks.call(
            {i: {"op": "free_bytes", "device": ordinal} for i, ordinal in enumerate(self._ordinals)},
            deadline_s=SETUP_DEADLINE_S,
        )
        for index, reply in replies.items():
            if reply.ended is not Ended.OK:
                raise _unusable(f"{self.devices[index].label}: {reply.says}")
        self.free_bytes = min((int(reply.value["free"]) for reply in replies.values()), default=0)
        self._stride = slot_bytes(LOADED_BYTES)
        room = self.free_bytes // 16 - count * self._stride
        largest = min(64 * MIB, max(2 * self._stride, room)) // 4096 * 4096
        if depth is Depth.QUICK:
            largest = min(largest, 16 * MIB)
        self.bandwidth_bytes = largest
        self.sizes = tuple(
            dict.fromkeys([(4, 0), (4096, 0), (65536, 0), (LOADED_BYTES - 4, 4), (largest, 0)])
        )
        self.half_bytes = count * self._stride + slot_bytes(largest)

    def _start(self, indices: Sequence[int]) -> None:
        starts = {
            i: {"op": "start", "device": self._ordinals[i], "half_bytes": self.half_bytes} for i in indices
        }
        for index, reply in self.ranks.call(starts, deadline_s=SETUP_DEADLINE_S).items():
            if reply.ended is not Ended.OK:
                raise _unusable(f"{self.devices[index].label} could not be prepared: {reply.says}")
            self._forget(index)
            self._handles[index] = {**reply.value, "fd": reply.fds[0] if reply.fds else -1}
        fresh = set(indices)
        for step in range(1, len(self.devices)):
            # In round `step` every process opens the memory of the one `step` further: one request each.
            pairs = [(near, (near + step) % len(self.devices)) for near in range(len(self.devices))]
            self._open([pair for pair in pairs if fresh & set(pair)])

    def _open(self, pairs: Sequence[tuple[int, int]]) -> None:
        requests, fds = {}, {}
        for near, far in pairs:
            handle = self._handles[far]
            requests[near] = {
                "op": "peer",
                "index": far,
                "device": self._ordinals[far],
                "ipc": handle.get("ipc", b""),
                "vmm_bytes": handle.get("vmm_bytes", 0),
            }
            fds[near] = [handle["fd"]] if handle["fd"] >= 0 else []
        replies = self.ranks.call(requests, deadline_s=SETUP_DEADLINE_S, fds=fds)
        for near, far in pairs:
            reply = replies[near]
            self._granted[near, far] = reply.value if reply.ended is Ended.OK else {}

    def _forget(self, index: int) -> None:
        if (old := self._handles.pop(index, None)) and old["fd"] >= 0:
            os.close(old["fd"])

    @property
    def tested(self) -> str:
        models = ", ".join(dict.fromkeys(device.model for device in self.devices)) or "no device"
        return f"{len(self.devices)} GPUs ({models}), a process each."

    @property
    def kernel(self) -> str:
        return f"copy engine over legacy IPC, PTX kernels over VMM handles; {self.driver}"

    @property
    def deadline_floor_s(self) -> float:
        # On a CPU that many processes share, one of ours is late without hanging.
        return self._deadline_floor_s * max(patience(), os.getloadavg()[0] / (os.cpu_count() or 1))

    @property
    def does_not_apply(self) -> dict[Criterion, str]:
        return {}

    def __enter__(self) -> "CudaFabric":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path(self, src: int, dst: int) -> Path:
        if over_nvlink := gpus.nvlink(self._gpus, self.devices[src], self.devices[dst]):
            return over_nvlink
        labels = (self.devices[src].label, self.devices[dst].label)
        return topology.path(self._places[src], self._places[dst], labels, topology.platform(self._host))

    def capacity_gb_s(self, component: str) -> float | None:
        # A switch's uplink and crossbar, a root and a socket link do not say what they carry.
        return None

    def preconditions(self) -> tuple[str, ...]:
        need = 4 * self.half_bytes
        short = (f"only {self.free_bytes / MIB:.0f} MiB are free on a GPU",) if self.free_bytes < need else ()
        return (*short, *gpus.disturbing(self._gpus, self.devices))

    def access(self) -> dict[tuple[int, int], dict[str, bool | Unknown]]:
        unknown = Unknown("its process did not answer")
        return {pair: dict(self._granted[pair]) or {"peer": unknown} for pair in self.pairs}

    def _kind(self, move: Move) -> str:
        near, far = (move.src, move.dst) if move.direction is Direction.PUSH else (move.dst, move.src)
        granted = self._granted[near, far]
        return next((kind for kind in PREFERS[move.engine] if granted.get(kind)), "")

    def move(self, moves: Sequence[Move], *, deadline_s: float) -> tuple[Moved, ...]:
        refused = Moved(ended=Ended.REFUSED, says="neither IPC nor VMM memory of the peer can be opened")
        done = {number: refused for number, move in enumerate(moves) if not self._kind(move)}
        open_numbers = [number for number in range(len(moves)) if number not in done]
        asked = [moves[number] for number in open_numbers]
        found = exchange(self.ranks, asked, stride=self._stride, deadline_s=deadline_s, kind=self._kind)
        done.update(zip(open_numbers, found, strict=True))
        return tuple(done[number] for number in range(len(moves)))

    def flag(self, src: int, dst: int, *, rounds: int, deadline_s: float) -> Flagged | Unknown:
        both = [
            {kind for kind in (VMM, IPC) if self._granted[pair].get(kind)}
            for pair in ((src, dst), (dst, src))
        ]
        kind = next((kind for kind in (VMM, IPC) if kind in both[0] & both[1]), "")
        if not kind:
            return Flagged(
                ended=Ended.REFUSED, says="neither IPC nor VMM memory can be opened in both directions"
            )
        self.ranks.call({src: {"op": "clear_flags"}, dst: {"op": "clear_flags"}}, deadline_s=deadline_s)
        ask = {"op": "flag", "kind": kind, "rounds": rounds, "limit_s": 0.8 * deadline_s}
        requests = {src: {**ask, "far": dst, "first": True}, dst: {**ask, "far": src, "first": False}}
        replies = self.ranks.call(requests, deadline_s=deadline_s)
        for reply in replies.values():
            if reply.ended is not Ended.OK:
                return Flagged(ended=reply.ended, says=reply.says)
        stale = sum(int(reply.value["stale"]) for reply in replies.values())
        done = min(int(reply.value["rounds"]) for reply in replies.values())
        if done < rounds:
            return Flagged(
                ended=Ended.HANG, rounds=done, stale=stale, says=f"timed out at round {done} of {rounds}"
            )
        return Flagged(one_way_ns=float(replies[src].value["ns"]), rounds=done, stale=stale)

    def counters(self) -> tuple[Counter, ...]:
        self._samples += 1
        labels = [device.label for device in self.devices]
        found = counters.read(self._host, self._places, labels, self._samples)
        return (*found, *gpus.counters(gpus.read(self._host), self.devices))

    def registers(self) -> tuple[Register, ...]:
        self._samples += 1
        labels = [device.label for device in self.devices]
        return registers.read(self._host, self._places, labels, self._samples)

    def links(self, pairs: Sequence[tuple[int, int]]) -> tuple[Link, ...] | Unknown:
        """The best that each link shows while a copy runs over it: idle links sleep at Gen1."""
        best: dict[int, Link] = {}
        stop = threading.Event()

        def watch() -> None:
            while True:
                self._samples += 1
                for device in self.devices:
                    seen = topology.link(self._host, device.label, device.bus_id, self._samples)
                    old = best.get(device.index)
                    if old is None or _faster(seen, old):
                        best[device.index] = seen
                if stop.wait(0.002):
                    return

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        # Long enough for a link that was asleep to train up.
        loops = max(1, int(LINK_WATCH_S * 50e9 / self.bandwidth_bytes))
        for device in self.devices:
            pair = next((pair for pair in pairs if pair[0] == device.index), None)
            if pair is not None:
                move = Move(*pair, Engine.COPY, Direction.PUSH, self.bandwidth_bytes, loops=loops)
                self.move([move], deadline_s=max(self.deadline_floor_s, 10.0))
        stop.set()
        watcher.join(5)
        return tuple(best[index] for index in sorted(best))

    def all_reduce(self, sizes: Sequence[int], *, rounds: int) -> AllReduce | Unknown:
        if is_unknown(self._nccl):
            return self._nccl
        return collective.all_reduce(self.ranks, len(self.devices), self._nccl, sizes, rounds)

    def extra_figures(self, depth: Depth) -> tuple[Figure, ...]:
        if depth is Depth.QUICK:
            return ()
        self._checked = cross_check(len(self.devices))
        return self._checked[1]

    def extra_matrices(self, depth: Depth) -> tuple[Matrix, ...]:
        return self._checked[0]

    def notes(self) -> tuple[str, ...]:
        return (*caches.warnings(caches.find(), self._changed_s or caches.boot_s()), *self._checked[2])

    def fingerprint(self) -> Fingerprint:
        return fingerprint("cuda", tuple(device.bus_id for device in self.devices), self.driver)

    def context(self, pairs: Sequence[tuple[int, int]]) -> dict[str, str]:
        ends = sorted({end for pair in pairs for end in pair})
        return about(self._host, [self.devices[end] for end in ends])

    def now_s(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self.ranks.close()
        for index in list(self._handles):
            self._forget(index)


def _faster(one: Link, other: Link) -> bool:
    if is_unknown(one.generation) or is_unknown(one.width):
        return False
    if is_unknown(other.generation) or is_unknown(other.width):
        return True
    return (one.generation, one.width) > (other.generation, other.width)


def _unusable(reason: str) -> MeasureFailed:
    if "No module named" in reason:
        return MissingExtra(
            "The CUDA fabric needs cuda-bindings; no GPU was tested.", next="pip install 'uncork[gpu]'"
        )
    return MeasureFailed(
        f"CUDA cannot be used here, no GPU was tested: {reason}",
        next="uncork verify --fabric host tests this machine's memory instead",
    )
