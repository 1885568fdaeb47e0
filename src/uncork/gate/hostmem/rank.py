"""One NUMA node's process: owns memory on that node, runs on its CPUs, and reaches the others' memory by mapping it."""

import ctypes
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from uncork.gate.hostmem import kernel as kernels
from uncork.gate.serve import Refused

FLAG_BYTES = 64 * 1024
_MPOL_BIND, _MPOL_MF_MOVE = 2, 3


class NodeMemory:
    """The memory of one node: a source half, a destination half, and a page of flags."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.half = 0
        self.own: mmap.mmap
        self.cpus: tuple[int, ...] = ()
        self.kernel: kernels.Kernel
        self.peers: dict[int, mmap.mmap] = {}

    def start(
        self, node: int, cpus: Sequence[int], half_bytes: int, kernel: str, bind: bool
    ) -> dict[str, Any]:
        """Allocate on this node and hand out the memory as a file descriptor."""
        self.cpus, self.half = tuple(cpus), half_bytes
        os.sched_setaffinity(0, self.cpus)
        self.kernel = kernels.load(kernel)
        total = 2 * half_bytes + FLAG_BYTES
        fd = os.memfd_create("uncork-gate", os.MFD_CLOEXEC)
        os.ftruncate(fd, total)
        self.own = self.peers[self.index] = mmap.mmap(fd, total)
        bound = bind and self._bind(node, total)
        zero = mmap.mmap(-1, 1 << 20)
        for at in range(0, total, 1 << 20):
            size = min(1 << 20, total - at)
            self.own[at : at + size] = zero[:size]
        return {"fds": [fd], "kernel": self.kernel.name, "bound": bool(bound)}

    def _bind(self, node: int, total: int) -> bool:
        number = {"x86_64": 237, "aarch64": 235}.get(os.uname().machine)
        if number is None:
            return False
        mask = (ctypes.c_ulong * 16)()
        mask[node // 64] = 1 << node % 64
        call = ctypes.CDLL(None, use_errno=True).syscall
        args = (
            ctypes.c_void_p(kernels.address(self.own)),
            ctypes.c_size_t(total),
            _MPOL_BIND,
            mask,
            1024,
            _MPOL_MF_MOVE,
        )
        return bool(call(number, *args) == 0)

    def peer(self, index: int, total: int, fds: list[int]) -> None:
        """Map another node's memory (again, after its process was replaced)."""
        self.peers[index] = mmap.mmap(fds[0], total)
        os.close(fds[0])

    def memory(self, index: int) -> mmap.mmap:
        """The memory of device `index`, this one's own included. Raises `Refused`."""
        if index not in self.peers:
            raise Refused(f"the memory of node {index} is not mapped")
        return self.peers[index]

    def ready(self, poison: list[dict[str, int]], fill: list[dict[str, int]]) -> None:
        """Poison destination slots (guards included) and write keyed patterns into source slots."""
        for slot in poison:
            at = self.half + slot["at"]
            self.own[at : at + slot["room"]] = bytes([slot["poison"]]) * slot["room"]
        for slot in fill:
            self.kernel.fill(self.own, slot["at"] + slot["offset"], slot["size"], slot["key"])

    def copy(self, moves: list[dict[str, int]], start_at_s: float) -> dict[str, Any]:
        """Run these copies at once, each on its share of this node's CPUs; seconds of each."""
        seconds: list[float] = [0.0] * len(moves)
        disturbed = [False] * len(moves)
        share = max(1, len(self.cpus) // len(moves))

        def one(number: int, move: dict[str, int]) -> None:
            at = share * number % len(self.cpus)
            copied = kernels.Stream(
                kernels.COPY,
                self.memory(move["src"]),
                move["from"],
                move["size"],
                self.memory(move["dst"]),
                self.half + move["to"],
            )
            share_of_cpus = self.cpus[at : at + share]
            seconds[number], disturbed[number] = self.kernel.stream(copied, share_of_cpus, move["loops"])

        for move in moves:
            self.memory(move["src"]), self.memory(move["dst"])
        if (early_s := start_at_s - time.monotonic()) > 0:
            time.sleep(early_s)
        if len(moves) == 1:
            one(0, moves[0])
        else:
            kernels.side_by_side([lambda n=n, m=m: one(n, m) for n, m in enumerate(moves)])  # type: ignore[misc]
        return {"seconds": seconds, "disturbed": disturbed}

    def check(self, received: list[dict[str, int]], sent: list[dict[str, int]]) -> dict[str, Any]:
        """Compare what arrived here, look at its guards, and re-check what was sent from here."""
        arrived = []
        for slot in received:
            base = self.half + slot["at"]
            begin, end = base + slot["offset"], base + slot["offset"] + slot["size"]
            wrong, first = self.kernel.check(self.own, begin, slot["size"], slot["key"])
            poison = bytes([slot["poison"]])
            guards = self.own[base:begin] + self.own[end : base + slot["room"]]
            arrived.append({"wrong": wrong, "first": first, "guard": guards != poison * len(guards)})
        changed = [
            self.kernel.check(self.own, s["at"] + s["offset"], s["size"], s["key"])[0] > 0 for s in sent
        ]
        return {"arrived": arrived, "changed": changed}

    def read(self, size: int, loops: int) -> dict[str, Any]:
        """Seconds that reading `size` bytes of this node's memory takes with all its CPUs."""
        seconds, disturbed = self.kernel.stream(
            kernels.Stream(kernels.READ, self.own, 0, size), self.cpus, loops
        )
        return {"seconds": seconds, "disturbed": disturbed}

    def flag(self, near: int, far: int, first: bool, rounds: int, limit_s: float) -> dict[str, Any]:
        """One side of a ping-pong whose flags lie on each receiver's node; both sides where near is far."""
        at = 2 * self.half
        if near != far:
            return self._flag_side(self.memory(far), self.memory(near), at, first, rounds, limit_s, -1)
        return self.core_flag(self.cpus[0], self.cpus[-1], rounds, limit_s)

    def core_flag(self, cpu_a: int, cpu_b: int, rounds: int, limit_s: float) -> dict[str, Any]:
        """Ping-pong between two CPUs through this node's memory."""
        answers: dict[bool, dict[str, Any]] = {}
        at = 2 * self.half + 8192

        def side(first: bool, cpu: int) -> None:
            answers[first] = self._flag_side(self.own, self.own, at, first, rounds, limit_s, cpu)

        self._clear(self.own, at)
        kernels.side_by_side([lambda: side(True, cpu_a), lambda: side(False, cpu_b)])
        os.sched_setaffinity(0, self.cpus)
        return {**answers[True], "stale": answers[True]["stale"] + answers[False]["stale"]}

    def clear_flags(self) -> None:
        """Reset this node's flags before a ping-pong."""
        self._clear(self.own, 2 * self.half)

    @staticmethod
    def _clear(map: mmap.mmap, at: int) -> None:
        map[at : at + 8192] = bytes(8192)

    def _flag_side(
        self, out: mmap.mmap, into: mmap.mmap, at: int, first: bool, rounds: int, limit_s: float, cpu: int
    ) -> dict[str, Any]:
        # Two flags and two payloads, 1 KiB apart so that no prefetcher pairs them.
        lib = self.kernel.compiled()
        mine, theirs = (0, 1024) if first else (1024, 0)
        there, here = kernels.address(out) + at, kernels.address(into) + at
        stale, ns = ctypes.c_uint64(), ctypes.c_double()
        args = (there + mine, here + theirs, there + 4096 + mine, here + 4096 + theirs)
        done = lib.uk_flag(*args, 8, rounds, int(first), cpu, limit_s, ctypes.byref(stale), ctypes.byref(ns))
        return {"rounds": done, "stale": stale.value, "ns": ns.value}

    def chase(self, target: int, size: int, steps: int) -> dict[str, Any]:
        """Nanoseconds of a dependent load from the memory of `target`; `size` is a power of two."""
        lib = self.kernel.compiled()
        start = kernels.address(self.memory(target))
        lib.uk_chase_prepare(start, size)
        samples = [lib.uk_chase(start, steps, self.cpus[0]) for _ in range(3)]
        os.sched_setaffinity(0, self.cpus)
        return {"samples_ns": samples}

    def wake(self, cpu: int, waker: int, idle_us: int, count: int) -> dict[str, Any]:
        """Microseconds to wake a thread that slept."""
        out = (ctypes.c_double * count)()
        failed = self.kernel.compiled().uk_wake(cpu, waker, idle_us, count, out)
        os.sched_setaffinity(0, self.cpus)
        return {"samples_us": [] if failed else list(out)}

    def hang(self) -> None:
        """Never answer: what the tests of the deadline ask for."""
        threading.Event().wait()


def operations(index: int) -> dict[str, Callable[..., Any]]:
    """What the coordinator may ask of this rank."""
    memory = NodeMemory(index)
    names = (
        "start",
        "peer",
        "ready",
        "copy",
        "check",
        "read",
        "flag",
        "core_flag",
        "clear_flags",
        "chase",
        "wake",
        "hang",
    )
    return {name: getattr(memory, name) for name in names}
