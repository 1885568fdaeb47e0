"""The code that moves and checks bytes in host memory: compiled C, else NumPy, else plain Python."""

import ctypes
import hashlib
import mmap
import os
import random
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from uncork.errors import UncorkError
from uncork.state import state_dir

COPY, READ, PLAIN_COPY = 0, 1, 2
FLAGS = ("-O3", "-march=native", "-shared", "-fPIC", "-pthread")
COMPILE_TIMEOUT_S = 60


class Kernel(Protocol):
    """Offsets and sizes in bytes; `map` is a shared mapping of this or of another rank."""

    name: str

    def stream(
        self,
        kind: int,
        dst: mmap.mmap | None,
        dst_at: int,
        src: mmap.mmap,
        src_at: int,
        size: int,
        cpus: Sequence[int],
        loops: int,
    ) -> tuple[float, bool]:
        """Seconds that `loops` copies (or reads) of `size` bytes take, one thread on each of `cpus`.

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


class CKernel:
    """kernel.c, compiled on this machine."""

    def __init__(self, library: Path) -> None:
        lib = ctypes.CDLL(str(library))
        pointer, size_t, u64, u32 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint32
        lib.uk_stream.restype = ctypes.c_double
        lib.uk_stream.argtypes = [
            ctypes.c_int,
            pointer,
            pointer,
            size_t,
            pointer,
            ctypes.c_int,
            ctypes.c_int,
            pointer,
        ]
        lib.uk_fill.argtypes = [pointer, size_t, u32, u32]
        lib.uk_fill.restype = None
        lib.uk_check.argtypes = [pointer, size_t, u32, u32, pointer]
        lib.uk_check.restype = u64
        lib.uk_chase_prepare.argtypes = [pointer, size_t]
        lib.uk_chase_prepare.restype = None
        lib.uk_chase.argtypes = [pointer, u64, ctypes.c_int]
        lib.uk_chase.restype = ctypes.c_double
        lib.uk_flag.argtypes = [pointer] * 4 + [
            ctypes.c_int,
            u64,
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_double,
            pointer,
            pointer,
        ]
        lib.uk_flag.restype = u64
        lib.uk_bind.argtypes = [pointer, size_t, ctypes.c_int]
        lib.uk_bind.restype = ctypes.c_long
        lib.uk_wake.argtypes = [ctypes.c_int] * 4 + [pointer]
        lib.uk_copy_name.restype = ctypes.c_char_p
        self._lib = lib
        self.name = f"compiled C ({lib.uk_copy_name().decode()})"

    def stream(
        self,
        kind: int,
        dst: mmap.mmap | None,
        dst_at: int,
        src: mmap.mmap,
        src_at: int,
        size: int,
        cpus: Sequence[int],
        loops: int,
    ) -> tuple[float, bool]:
        to = address(dst) + dst_at if dst is not None else None
        aligned = dst_at % 64 == 0 and src_at % 64 == 0
        if kind == COPY and not aligned:
            kind = PLAIN_COPY
        count = min(len(cpus), max(1, size // 65536))
        list_of_cpus = (ctypes.c_int * count)(*cpus[:count])
        preempted = ctypes.c_long()
        args = (kind, to, address(src) + src_at, size, list_of_cpus, count, loops, ctypes.byref(preempted))
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

    def stream(
        self,
        kind: int,
        dst: mmap.mmap | None,
        dst_at: int,
        src: mmap.mmap,
        src_at: int,
        size: int,
        cpus: Sequence[int],
        loops: int,
    ) -> tuple[float, bool]:
        np = self._np
        each = size // len(cpus) // 8 * 8

        def one(part: int) -> None:
            count = size - each * part if part == len(cpus) - 1 else each
            source = np.frombuffer(src, dtype=np.uint8, count=count, offset=src_at + each * part)
            if kind == READ:
                wide = source[: count // 8 * 8].view(np.uint64)
                for _ in range(loops):
                    wide.max()
                return
            target = np.frombuffer(dst, dtype=np.uint8, count=count, offset=dst_at + each * part)
            for _ in range(loops):
                np.copyto(target, source)

        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        seconds = in_threads(one, cpus)
        return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw > before

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

    def stream(
        self,
        kind: int,
        dst: mmap.mmap | None,
        dst_at: int,
        src: mmap.mmap,
        src_at: int,
        size: int,
        cpus: Sequence[int],
        loops: int,
    ) -> tuple[float, bool]:
        source = memoryview(src)[src_at : src_at + size]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        start_s = time.perf_counter()
        for _ in range(loops):
            if kind == READ:
                hashlib.md5(source, usedforsecurity=False)
            else:
                memoryview(dst)[dst_at : dst_at + size] = source  # type: ignore[arg-type]
        seconds = time.perf_counter() - start_s
        return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw > before

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


def in_threads(one: Callable[[int], None], cpus: Sequence[int]) -> float:
    """Seconds from a common start to the last end of one thread per CPU, each pinned to its own."""
    barrier = threading.Barrier(len(cpus) + 1)
    errors: list[BaseException] = []

    def run(part: int, cpu: int) -> None:
        os.sched_setaffinity(0, {cpu})
        barrier.wait()
        try:
            one(part)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(part, cpu)) for part, cpu in enumerate(cpus)]
    for thread in threads:
        thread.start()
    barrier.wait()
    start_s = time.perf_counter()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return time.perf_counter() - start_s


def address(map: mmap.mmap) -> int:
    """Where a mapping starts."""
    return ctypes.addressof(ctypes.c_char.from_buffer(map))


def halves(key: int) -> tuple[int, int]:
    """A 64-bit key as the two words that the pattern is made from."""
    return key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF


def compiler() -> str | None:
    """The C compiler that would be used: `CC`, then cc, gcc, clang."""
    named = os.environ.get("CC")
    return next(
        (path for name in (named, "cc", "gcc", "clang") if name and (path := shutil.which(name))), None
    )


def build(source: str, name: str, *, cache: Path | None = None) -> Path | None:
    """Compile C text to a shared library, once per text, compiler and CPU; None where it cannot be done."""
    cc = compiler()
    if cc is None:
        return None
    try:
        folder = (cache or state_dir()) / "cache"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        said = subprocess.run(
            [cc, "--version"], capture_output=True, timeout=COMPILE_TIMEOUT_S, check=True
        ).stdout
        # -march=native: a library built on one CPU may hold instructions that another lacks.
        about = source.encode() + said + " ".join(FLAGS).encode() + _cpu_flags()
        library = folder / f"{name}-{hashlib.sha256(about).hexdigest()[:16]}.so"
        if not library.exists():
            code = library.with_suffix(f".{os.getpid()}.c")
            fresh = code.with_suffix(".so")
            code.write_text(source, encoding="utf-8")
            try:
                subprocess.run(
                    [cc, *FLAGS, str(code), "-o", str(fresh)],
                    capture_output=True,
                    timeout=COMPILE_TIMEOUT_S,
                    check=True,
                )
                fresh.replace(library)
            finally:
                code.unlink(missing_ok=True)
                fresh.unlink(missing_ok=True)
    except (OSError, subprocess.SubprocessError, UncorkError):
        return None
    return library


def _cpu_flags() -> bytes:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return b""
    return next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "").encode()


def load(choice: str = "auto", *, cache: Path | None = None) -> Kernel:
    """The best kernel this machine has; `choice` names one (c, numpy, plain) for tests and comparisons."""
    if choice in ("auto", "c"):
        source = resources.files(__package__).joinpath("kernel.c").read_text(encoding="utf-8")
        library = build(source, "hostmem", cache=cache)
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
