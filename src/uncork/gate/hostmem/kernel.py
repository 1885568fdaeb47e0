"""The code that moves and checks bytes in host memory: compiled C, else NumPy, else plain Python."""

import contextlib
import ctypes
import hashlib
import mmap
import os
import random
import resource
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

import msgspec

from uncork import compiler

COPY, READ, PLAIN_COPY = 0, 1, 2


class Stream(msgspec.Struct, frozen=True):
    """What to copy or to read; offsets and sizes in bytes, `dst` None where it is only read."""

    kind: int
    src: mmap.mmap
    src_at: int
    size: int
    dst: mmap.mmap | None = None
    dst_at: int = 0


class Kernel(Protocol):
    """Offsets and sizes in bytes; `map` is a shared mapping of this or of another rank."""

    name: str

    def stream(self, one: Stream, cpus: Sequence[int], loops: int) -> tuple[float, bool]:
        """Seconds that `loops` of these copies (or reads) take, one thread on each of `cpus`.

        Also whether the kernel gave one of these CPUs to somebody else meanwhile.
        """
        ...

    def fill(self, map: mmap.mmap, at: int, size: int, key: int) -> None:
        """Write the pattern that `key` names."""
        ...

    def check(self, map: mmap.mmap, at: int, size: int, key: int) -> tuple[int, int]:
        """Words that differ from the pattern, and the byte offset of the first one (-1)."""
        ...

    def compiled(self) -> Any:
        """The C functions behind latency figures, or None."""
        ...


_POINTER, _SIZE, _U64, _U32 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint32
_INT, _DOUBLE = ctypes.c_int, ctypes.c_double
# Function of kernel.c → what it returns, what it takes.
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "uk_stream": (_DOUBLE, [_INT, _POINTER, _POINTER, _SIZE, _POINTER, _INT, _INT, _POINTER]),
    "uk_fill": (None, [_POINTER, _SIZE, _U32, _U32]),
    "uk_check": (_U64, [_POINTER, _SIZE, _U32, _U32, _POINTER]),
    "uk_chase_prepare": (None, [_POINTER, _SIZE]),
    "uk_chase": (_DOUBLE, [_POINTER, _U64, _INT]),
    "uk_flag": (_U64, [_POINTER] * 4 + [_INT, _U64, _INT, _INT, _DOUBLE, _POINTER, _POINTER]),
    "uk_bind": (ctypes.c_long, [_POINTER, _SIZE, _INT]),
    "uk_wake": (_INT, [_INT] * 4 + [_POINTER]),
    "uk_copy_name": (ctypes.c_char_p, []),
}


class CKernel:
    """kernel.c, compiled on this machine."""

    def __init__(self, library: Path) -> None:
        lib = ctypes.CDLL(str(library))
        for name, (returns, takes) in _FUNCTIONS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = returns, takes
        self._lib = lib
        self.name = f"compiled C ({lib.uk_copy_name().decode()})"

    def stream(self, one: Stream, cpus: Sequence[int], loops: int) -> tuple[float, bool]:
        to = address(one.dst) + one.dst_at if one.dst is not None else None
        aligned = one.dst_at % 64 == 0 and one.src_at % 64 == 0
        kind = PLAIN_COPY if one.kind == COPY and not aligned else one.kind
        count = min(len(cpus), max(1, one.size // 65536))
        list_of_cpus = (ctypes.c_int * count)(*cpus[:count])
        preempted = ctypes.c_long()
        source = address(one.src) + one.src_at
        args = (kind, to, source, one.size, list_of_cpus, count, loops, ctypes.byref(preempted))
        return float(self._lib.uk_stream(*args)), preempted.value > 0

    def fill(self, map: mmap.mmap, at: int, size: int, key: int) -> None:
        self._lib.uk_fill(address(map) + at, size // 4, *halves(key))

    def check(self, map: mmap.mmap, at: int, size: int, key: int) -> tuple[int, int]:
        first = ctypes.c_uint64()
        wrong = self._lib.uk_check(address(map) + at, size // 4, *halves(key), ctypes.byref(first))
        return int(wrong), int(first.value) * 4 if wrong else -1

    def compiled(self) -> Any:
        return self._lib


class NumpyKernel:
    """np.copyto in threads: about three quarters of a non-temporal copy, since its stores read the line first."""

    def __init__(self) -> None:
        import numpy

        self._np = numpy
        self.name = f"NumPy {numpy.__version__} (no C compiler found)"

    def stream(self, one: Stream, cpus: Sequence[int], loops: int) -> tuple[float, bool]:
        np = self._np
        each = one.size // len(cpus) // 8 * 8

        def share(part: int) -> None:
            count = one.size - each * part if part == len(cpus) - 1 else each
            source = np.frombuffer(one.src, dtype=np.uint8, count=count, offset=one.src_at + each * part)
            if one.kind == READ:
                wide = source[: count // 8 * 8].view(np.uint64)
                for _ in range(loops):
                    wide.max()
                return
            target = np.frombuffer(one.dst, dtype=np.uint8, count=count, offset=one.dst_at + each * part)
            for _ in range(loops):
                np.copyto(target, source)

        before = preemptions()
        seconds = in_threads(share, cpus)
        return seconds, preemptions() > before

    def fill(self, map: mmap.mmap, at: int, size: int, key: int) -> None:
        np = self._np
        target = np.frombuffer(map, dtype=np.uint32, count=size // 4, offset=at)
        for start, words in self._words(size // 4, key):
            target[start : start + len(words)] = words

    def check(self, map: mmap.mmap, at: int, size: int, key: int) -> tuple[int, int]:
        np = self._np
        have = np.frombuffer(map, dtype=np.uint32, count=size // 4, offset=at)
        wrong, first = 0, -1
        for start, words in self._words(size // 4, key):
            bad = have[start : start + len(words)] != words
            count = int(np.count_nonzero(bad))
            if count and first < 0:
                first = (start + int(bad.argmax())) * 4
            wrong += count
        return wrong, first

    def _words(self, words: int, key: int, block: int = 1 << 16) -> Any:
        np = self._np
        k0, k1 = halves(key)
        for start in range(0, words, block):
            x = np.arange(start, min(start + block, words), dtype=np.uint32)
            x = (x ^ np.uint32(k0)) * np.uint32(0x9E3779B1) + np.uint32(k1)
            x ^= x >> np.uint32(16)
            x *= np.uint32(0x85EBCA6B)
            x ^= x >> np.uint32(13)
            x *= np.uint32(0xC2B2AE35)
            yield start, x ^ (x >> np.uint32(16))

    def compiled(self) -> Any:
        return None


class PlainKernel:
    """Slices of memoryview, one thread: what the standard library alone can do."""

    name = "plain Python (neither a C compiler nor NumPy found)"

    def stream(self, one: Stream, cpus: Sequence[int], loops: int) -> tuple[float, bool]:
        source = memoryview(one.src)[one.src_at : one.src_at + one.size]
        target = None if one.dst is None else memoryview(one.dst)[one.dst_at : one.dst_at + one.size]
        before = preemptions()
        start_s = time.perf_counter()
        for _ in range(loops):
            if target is None:
                hashlib.md5(source, usedforsecurity=False)
            else:
                target[:] = source
        seconds = time.perf_counter() - start_s
        return seconds, preemptions() > before

    def fill(self, map: mmap.mmap, at: int, size: int, key: int) -> None:
        for start, block in self._blocks(size, key):
            map[at + start : at + start + len(block)] = block

    def check(self, map: mmap.mmap, at: int, size: int, key: int) -> tuple[int, int]:
        wrong, first = 0, -1
        for start, block in self._blocks(size, key):
            have = map[at + start : at + start + len(block)]
            if have == block:
                continue
            bad = [i for i in range(0, len(block), 4) if have[i : i + 4] != block[i : i + 4]]
            first = start + bad[0] if first < 0 else first
            wrong += len(bad)
        return wrong, first

    @staticmethod
    def _blocks(size: int, key: int, block: int = 1 << 20) -> Any:
        source = random.Random(key)
        for start in range(0, size, block):
            yield start, source.randbytes(min(block, size - start))

    def compiled(self) -> Any:
        return None


def preemptions() -> int:
    """How often the kernel took a CPU away from this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def side_by_side(calls: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread of its own; the first error of any is raised once all have ended."""
    with ThreadPoolExecutor(len(calls)) as threads:
        ends = [threads.submit(call) for call in calls]
    for end in ends:
        end.result()


def in_threads(one: Callable[[int], None], cpus: Sequence[int]) -> float:
    """Seconds from a common start to the last end of one thread per CPU, each pinned to its own."""
    start_s: list[float] = []
    barrier = threading.Barrier(len(cpus), action=lambda: start_s.append(time.perf_counter()))

    def run(part: int, cpu: int) -> None:
        try:
            os.sched_setaffinity(0, {cpu})
        except OSError:
            barrier.abort()  # the others would wait for ever
            raise
        with contextlib.suppress(threading.BrokenBarrierError):  # another could not be pinned, and says so
            barrier.wait()
            one(part)

    side_by_side([partial(run, part, cpu) for part, cpu in enumerate(cpus)])
    return time.perf_counter() - start_s[0]


def address(map: mmap.mmap) -> int:
    """Where a mapping starts."""
    return ctypes.addressof(ctypes.c_char.from_buffer(map))


def halves(key: int) -> tuple[int, int]:
    """A 64-bit key as the two words that the pattern is made from."""
    return key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF


def load(choice: str = "auto", *, cache: Path | None = None) -> Kernel:
    """The best kernel this machine has; `choice` names one (c, numpy, plain) for tests and comparisons."""
    if choice in ("auto", "c"):
        source = resources.files(__package__).joinpath("kernel.c").read_text(encoding="utf-8")
        library = compiler.library(source, "hostmem", cache=cache)
        if library is not None:
            try:
                return CKernel(library)
            except OSError:
                pass  # a cache folder mounted noexec
    if choice in ("auto", "c", "numpy"):
        try:
            return NumpyKernel()
        except ImportError:
            pass
    return PlainKernel()
