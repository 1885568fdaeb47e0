"""One clock: CLOCK_MONOTONIC, and kernel receive stamps (CLOCK_REALTIME) brought onto it.

Both clocks are slewed alike by NTP, so their offset is constant until somebody sets the wall clock; a step
within a level voids it.  Source: Linux Documentation/core-api/timekeeping.rst.
"""

from __future__ import annotations

import struct
import time
from array import array

# SO_TIMESTAMPNS of asm-generic/socket.h, and what its control message is called; the socket module lacks it.
SO_TIMESTAMPNS = 35
STEP_NS = 1_000_000
_TIMESPEC = struct.Struct("@qq")


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, from the tightest of five brackets (good to about 0.1 µs)."""
    best_width, best = 1 << 62, 0
    for _ in range(5):
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best_width:
            best_width, best = after - before, real - (before + after) // 2
    return best


def stamp_ns(stamp: bytes | bytearray) -> int:
    """One stamp in nanoseconds of its own clock."""
    seconds, nanoseconds = _TIMESPEC.unpack(stamp)
    return int(seconds * 1_000_000_000 + nanoseconds)


def to_monotonic(stamps: bytearray, offset_ns: int, origin_ns: int = 0) -> tuple[array[int], bool]:
    """Stamps (struct timespec, or zero seconds and monotonic nanoseconds where the kernel gave none) as
    monotonic nanoseconds since `origin_ns`, and whether all came from the kernel."""
    pairs = memoryview(stamps).cast("q").tolist()
    seconds, nanoseconds = pairs[::2], pairs[1::2]
    zero_ns = offset_ns + origin_ns
    kernel = 0 not in seconds
    if kernel:
        found = [s * 1_000_000_000 + n - zero_ns for s, n in zip(seconds, nanoseconds, strict=True)]
    else:
        found = [
            s * 1_000_000_000 + n - zero_ns if s else n - origin_ns
            for s, n in zip(seconds, nanoseconds, strict=True)
        ]
    return array("q", found), kernel
