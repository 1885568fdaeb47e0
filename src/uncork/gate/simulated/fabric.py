"""The simulated fabric: answers as a host of that shape with these faults would, in virtual time."""

import random
from collections.abc import Iterator, Sequence

from uncork.gate.fabric import (
    AllReduce,
    Counter,
    Direction,
    Ended,
    Engine,
    Flagged,
    Link,
    Move,
    Moved,
    Path,
    Register,
    Stuck,
)
from uncork.gate.simulated.faults import Fault, FaultKind
from uncork.gate.simulated.flows import fair_rates
from uncork.gate.simulated.graph import SimulatedHost
from uncork.model.gate import Criterion, Depth, Figure, Fingerprint, Matrix
from uncork.model.unknown import Unknown

MIB = 1 << 20
# Virtual costs: a command to a rank and back, contexts of all ranks, filling and checking at half of HBM's pace.
ROUND_TRIP_S, START_S, CHECK_GB_S = 60e-6, 3.0, 500.0
KERNEL_EFFICIENCY = 0.93
STAGED_NS, STAGED_OF_RAW = 14_000.0, 0.62

_K = FaultKind
_WRONG = frozenset({_K.DROPPED_INTO, _K.ZEROS, _K.ONES, _K.WRONG_SOURCE})
_COUNTED = ("fatal", "nonfatal", "correctable")


class SimulatedFabric:
    """A simulated host with faults. `slowed` is the chance that a sample is slowed by 10-60 % by something else."""

    name = "simulated"
    simulated = True
    engines = (Engine.COPY, Engine.KERNEL)
    deadline_floor_s = 1.0
    kernel = "none: no byte was moved"
    bandwidth_bytes = 64 * MIB
    sizes = ((4, 0), (4096, 0), (65536, 0), (2 * MIB, 4), (64 * MIB, 0))

    def __init__(
        self,
        host: SimulatedHost,
        faults: Sequence[Fault] = (),
        *,
        seed: int = 0,
        jitter: float = 0.003,
        slowed: float = 0.0,
    ) -> None:
        self.host, self.faults = host, tuple(faults)
        self.devices = host.devices()
        self.pairs = tuple((i, j) for i in range(host.count) for j in range(host.count) if i != j)
        self._random = random.Random(seed)
        self._jitter, self._slowed = jitter, slowed
        self._clock_s, self._started = 0.0, False
        self._counted: dict[tuple[str, str], int] = {}

    @property
    def tested(self) -> str:
        return f"A simulation of {self.host.says}. No real device was tested."

    @property
    def does_not_apply(self) -> dict[Criterion, str]:
        return {}

    def __enter__(self) -> "SimulatedFabric":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def path(self, src: int, dst: int) -> Path:
        return self.host.path(src, dst)

    def capacity_gb_s(self, component: str) -> float | None:
        # A real socket link does not say what it carries.
        return None if component.startswith("socket link") else self.host.capacity_gb_s(component)

    def preconditions(self) -> tuple[str, ...]:
        return ()

    def _of(self, *kinds: FaultKind) -> Iterator[Fault]:
        return (fault for fault in self.faults if fault.kind in kinds)

    def _hit(self, src: int, dst: int, *kinds: FaultKind) -> Fault | None:
        return next((fault for fault in self._of(*kinds) if fault.hits(self.host, src, dst)), None)

    def access(self) -> dict[tuple[int, int], dict[str, bool | Unknown]]:
        self._spend(0.3)
        kinds = {"peer": _K.NO_PEER, "ipc": _K.NO_IPC, "vmm": _K.NO_VMM}
        return {
            pair: {name: self._hit(*pair, kind) is None for name, kind in kinds.items()}
            for pair in self.pairs
        }

    def _spend(self, seconds: float) -> None:
        if not self._started:
            self._started = True
            self._clock_s += START_S
        self._clock_s += seconds

    def move(self, moves: Sequence[Move], *, deadline_s: float) -> tuple[Moved, ...]:
        for move in moves:
            initiator = move.src if move.direction is Direction.PUSH else move.dst
            if stuck := next((fault for fault in self._of(_K.STUCK) if fault.is_about(initiator)), None):
                self._spend(deadline_s + 2)
                raise Stuck(
                    int(stuck.where),
                    f"the process of gpu{stuck.where} survives SIGKILL: reset the GPU or reboot",
                )
        rates = self._rates(moves)
        done = tuple(self._one(move, rate, len(moves) > 1) for move, rate in zip(moves, rates, strict=True))
        if any(one.ended is Ended.HANG for one in done):
            self._spend(deadline_s + 0.5)
        checked = sum(move.size_bytes for move in moves if move.key is not None)
        steps = 3 if checked else 1
        self._spend(
            steps * ROUND_TRIP_S
            + max(one.seconds for one in done)
            + 2 * checked / CHECK_GB_S / 1e9 / len(self.devices)
        )
        self._count(moves)
        return done

    def _one(self, move: Move, gb_s: float, loaded: bool) -> Moved:
        src, dst = move.src, move.dst
        if self._hit(src, dst, _K.NO_PEER, _K.NO_IPC, _K.NO_VMM):
            return Moved(ended=Ended.REFUSED, says="peer access is not supported")
        if self._hit(src, dst, _K.HANG):
            return Moved(ended=Ended.HANG, says="no answer; its process was replaced")
        if self._hit(src, dst, _K.FAILS):
            return Moved(ended=Ended.FAILED, says="CUDA_ERROR_LAUNCH_FAILED")
        seconds = move.size_bytes * move.loops / (gb_s * 1e9 * self._noise()) + 3e-6
        if fast := self._hit(src, dst, _K.IMPOSSIBLE):
            seconds /= 1 + fast.amount
        if move.key is None:
            return Moved(seconds=seconds)
        wrong, first = self._wrong(move, loaded)
        guard = self._hit(src, dst, _K.GUARD) is not None
        changed = self._hit(src, dst, _K.SOURCE_CHANGED) is not None
        return Moved(Ended.OK, seconds, wrong, first, guard, changed)

    def _wrong(self, move: Move, loaded: bool) -> tuple[int, int]:
        words, src, dst = move.size_bytes // 4, move.src, move.dst
        into = next((fault for fault in self._of(_K.DROPPED_INTO) if fault.is_about(dst)), None)
        if into or self._hit(src, dst, *(_WRONG - {_K.DROPPED_INTO})):
            return words, 0
        if move.direction is Direction.PUSH and self._hit(src, dst, _K.DROPPED_WRITE):
            return words, 0
        if self._hit(src, dst, _K.ALIAS) and move.size_bytes > 2 * MIB + 4:
            return (move.size_bytes - 2 * MIB) // 4, 2 * MIB
        if self._hit(src, dst, _K.BIT_FLIP) and move.size_bytes >= 65536:
            return 1, 4 * self._random.randrange(words)
        if loaded and self._hit(src, dst, _K.CORRUPT_LOADED):
            return max(1, words // 1024), 4 * self._random.randrange(words)
        return 0, -1

    def _noise(self) -> float:
        noise = 1 + self._random.gauss(0, self._jitter)
        return noise * (1 - self._random.uniform(0.1, 0.6)) if self._random.random() < self._slowed else noise

    def _rates(self, moves: Sequence[Move]) -> tuple[float, ...]:
        capacity = {
            name: self.host.capacity_gb_s(name)
            for move in moves
            for name in self.path(move.src, move.dst).components
        }
        for fault in self._of(_K.SLOW):
            if fault.where in capacity:
                capacity[fault.where] *= fault.amount
        flows = [self.path(move.src, move.dst).components for move in moves]
        alone = [self._alone(move) for move in moves]
        rates = fair_rates(flows, alone, capacity)
        return tuple(rate * self._collapse(move, moves) for move, rate in zip(moves, rates, strict=True))

    def _alone(self, move: Move) -> float:
        src, dst = move.src, move.dst
        rate = self.host.alone_gb_s(src, dst)
        for fault in self._of(_K.SLOW):
            if fault.where == f"{src}-{dst}":
                rate *= fault.amount
        if self._hit(src, dst, _K.STAGED):
            rate = min(rate, STAGED_OF_RAW * (self.path(src, dst).raw_gb_s or rate))
        if move.engine is Engine.KERNEL:
            rate *= KERNEL_EFFICIENCY
            if self._hit(src, dst, _K.KERNEL_SLOW):
                rate /= 15
        return rate

    def _collapse(self, move: Move, moves: Sequence[Move]) -> float:
        """Posted writes of two GPUs of one switch to two other switches: published as 2.7 of 51 GB/s."""
        for fault in self._of(_K.COLLAPSE):
            mine = self.host.switch(move.src)
            if move.direction is not Direction.PUSH or fault.where != f"switch{mine}":
                continue
            away = {
                (other.src, self.host.switch(other.dst))
                for other in moves
                if self.host.switch(other.src) == mine and self.host.switch(other.dst) != mine
            }
            leaves = self.host.switch(move.dst) != mine
            if leaves and len({src for src, _ in away}) > 1 and len({to for _, to in away}) > 1:
                return 0.07
        return 1.0

    def flag(self, src: int, dst: int, *, rounds: int, deadline_s: float) -> Flagged | Unknown:
        for fault in self._of(_K.STUCK):
            if fault.is_about(src) or fault.is_about(dst):
                raise Stuck(
                    int(fault.where),
                    f"the process of gpu{fault.where} survives SIGKILL: reset the GPU or reboot",
                )
        either = [(src, dst), (dst, src)]
        if any(self._hit(*pair, _K.NO_PEER, _K.NO_IPC) for pair in either):
            return Flagged(ended=Ended.REFUSED, says="peer access is not supported")
        if any(self._hit(*pair, _K.HANG) for pair in either):
            self._spend(deadline_s)
            return Flagged(ended=Ended.HANG, says="timed out at round 0")
        ns = self.host.flag_ns(src, dst)
        if any(self._hit(*pair, _K.STAGED) for pair in either):
            ns = STAGED_NS
        slower = self._hit(*either[0], _K.LATENCY) or self._hit(*either[1], _K.LATENCY)
        ns = (ns + (1000 * slower.amount if slower else 0)) * (1 + abs(self._random.gauss(0, 0.001)))
        stale = self._hit(*either[0], _K.FLAG_FIRST) or self._hit(*either[1], _K.FLAG_FIRST)
        self._spend(ROUND_TRIP_S + rounds * 2 * ns * 1e-9)
        return Flagged(
            one_way_ns=ns, rounds=rounds, stale=max(1, int(rounds * 1e-4 * stale.amount)) if stale else 0
        )

    def _count(self, moves: Sequence[Move]) -> None:
        """Faulty counters creep while traffic crosses their component."""
        for fault in self._of(_K.ERRORS, _K.CORRECTABLE):
            kind = "nonfatal" if fault.kind is _K.ERRORS else "correctable"
            if any(fault.hits(self.host, move.src, move.dst) for move in moves):
                # `amount` errors for the whole run, on its first transfers.
                key = (fault.where, kind)
                self._counted[key] = min(int(fault.amount), self._counted.get(key, 0) + 1)

    def counters(self) -> tuple[Counter, ...]:
        unreadable = {fault.where for fault in self._of(_K.COUNTER_UNREADABLE)}
        names = [*self.host.components(), *(f"gpu{device.index}" for device in self.devices)]
        found = []
        for name in names:
            for kind in _COUNTED:
                value: int | Unknown = self._counted.get((name, kind), 0)
                found.append(
                    Counter(name, kind, Unknown("permission denied") if name in unreadable else value)
                )
        return tuple(found)

    def registers(self) -> tuple[Register, ...]:
        # A link that trains anew forgets what was written to its registers: the fault strikes once traffic flows.
        lost = {fault.where for fault in self._of(_K.REGISTER)} if self._clock_s else set()
        return tuple(
            Register(f"gpu{device.index} link", "MaxReadReq", "128" if str(device.index) in lost else "512")
            for device in self.devices
        )

    def links(self, pairs: Sequence[tuple[int, int]]) -> tuple[Link, ...] | Unknown:
        self._spend(0.2)
        return tuple(self._link(f"gpu{device.index} link", str(device.index)) for device in self.devices)

    def _link(self, name: str, device: str) -> Link:
        down = any(fault.where == device for fault in self._of(_K.LINK_DOWN))
        full, wide = self.host.generation, self.host.width
        return Link(name, full - 1 if down else full, wide, full, wide)

    def all_reduce(self, sizes: Sequence[int], *, rounds: int) -> AllReduce | Unknown:
        slow = next(self._of(_K.ALL_REDUCE), None)
        self._spend(3.0)
        samples = {}
        for size in sizes:
            middle = (17 + 10 * size / 65536) * (1 + (slow.amount if slow else 0))
            samples[size] = tuple(middle * (1 + abs(self._random.gauss(0, 0.02))) for _ in range(rounds))
        shm = {f"channel {fault.where}": "SHM" for fault in self._of(_K.NCCL_SHM)}
        return AllReduce("simulated NCCL", samples, shm or {"channel 0": "P2P/CUMEM"})

    def extra_figures(self, depth: Depth) -> tuple[Figure, ...]:
        return ()

    def extra_matrices(self, depth: Depth) -> tuple[Matrix, ...]:
        return ()

    def fingerprint(self) -> Fingerprint:
        bus_ids = tuple(device.bus_id for device in self.devices)
        return Fingerprint("simulated", "simulation", "", "", self.host.name, bus_ids, "1")

    def context(self, pairs: Sequence[tuple[int, int]]) -> dict[str, str]:
        return {f"{src}→{dst}": " · ".join(self.path(src, dst).components) for src, dst in pairs}

    def notes(self) -> tuple[str, ...]:
        return ()

    def now_s(self) -> float:
        return self._clock_s

    def close(self) -> None:
        pass
