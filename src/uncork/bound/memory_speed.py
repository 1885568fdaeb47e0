"""How fast this host reads its memory: what a CPU that decodes is bound by.

The C library's `memchr` runs over the buffer looking for a byte that is not there: a pure read, vectorised, and
ctypes lets go of the interpreter lock meanwhile, so that threads read side by side.
"""

import ctypes
import mmap
import os
import time
from concurrent.futures import ThreadPoolExecutor

from uncork.errors import MeasureFailed

_SOUGHT = 0xA5
_SLICE_BYTES = 16 << 20  # one pass of one thread: a few ms, so that a pass fits between two disturbances


def read_gb_s(size_bytes: int, *, threads: int | None = None, seconds: float = 1.0) -> float:
    """The best read bandwidth over a buffer of `size_bytes`, in decimal GB/s.

    The buffer is as large as what a token reads, since a model that fits a cache is bound by the cache; passes
    walk over all of it. A pass is one slice by every thread at once, and its rate the sum of theirs. The best
    pass is taken: a busy host makes passes slow, and a bound must not be too low. Raises MeasureFailed where no
    such buffer can be had.
    """
    workers = threads or len(os.sched_getaffinity(0))
    size = max(1 << 20, size_bytes // workers)
    try:
        buffers = [mmap.mmap(-1, size) for _ in range(workers)]
    except (OSError, ValueError) as error:
        raise MeasureFailed(f"no memory of {size_bytes / 1e9:.2f} GB to measure its speed: {error}") from None
    starts = [ctypes.addressof(ctypes.c_char.from_buffer(buffer)) for buffer in buffers]
    search = ctypes.CDLL(None).memchr
    search.argtypes, search.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
    for start in starts:
        ctypes.memset(start, 1, size)  # a page that was never written is one shared zero page
    step = min(size, _SLICE_BYTES)
    offsets = range(0, size - step + 1, step)

    def read(at: int) -> float:
        started = time.perf_counter_ns()
        search(at, _SOUGHT, step)
        return step / (time.perf_counter_ns() - started)

    best = 0.0
    with ThreadPoolExecutor(workers) as pool:
        until = time.perf_counter() + seconds
        while best == 0.0 or time.perf_counter() < until:
            for offset in offsets:
                best = max(best, sum(pool.map(read, [start + offset for start in starts])))
    return best
