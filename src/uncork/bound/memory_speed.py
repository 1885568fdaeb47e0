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


def read_gb_s(size_bytes: int, *, threads: int | None = None, seconds: float = 0.4) -> float:
    """The best read bandwidth over a buffer of `size_bytes`, in decimal GB/s.

    The buffer is as large as what a token reads, since a model that fits a cache is bound by the cache. The best
    of all passes is taken: a bound must not be too low. Raises MeasureFailed where no such buffer can be had.
    """
    workers = threads or len(os.sched_getaffinity(0))
    size = max(1 << 20, size_bytes // workers)
    try:
        buffers = [mmap.mmap(-1, size) for _ in range(workers)]
    except (OSError, ValueError) as error:
        raise MeasureFailed(f"no memory of {size_bytes / 1e9:.2f} GB to measure its speed: {error}") from None
    views = [(ctypes.c_char * size).from_buffer(buffer) for buffer in buffers]
    search = ctypes.CDLL(None).memchr
    search.argtypes, search.restype = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t), ctypes.c_void_p
    for view in views:
        ctypes.memset(view, 1, size)  # a page that was never written is one shared zero page
    best = 0.0
    with ThreadPoolExecutor(workers) as pool:
        until = time.perf_counter() + seconds
        while best == 0.0 or time.perf_counter() < until:
            started = time.perf_counter_ns()
            list(pool.map(lambda view: search(view, _SOUGHT, size), views))
            best = max(best, workers * size / (time.perf_counter_ns() - started))
    return best
