"""Wait for answers and read them: the part of the loop that runs once a token.

A read that holds plain token events and nothing else (plain.py) is stamped, and that is all; everything else is
left to the loop. `Reads` does it in Python; `CompiledReads` in C (reads.c), where this machine has a compiler: a
token then costs about what the kernel takes for it.
"""

from __future__ import annotations

import os
import select
import struct
import time
from functools import lru_cache
from importlib import resources
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from uncork import compiler
from uncork.bench.gauge import Gauge
from uncork.bench.plain import QUOTE, SIZE_LINES
from uncork.bench.pool import Pool
from uncork.bench.sockets import CONTROL_BYTES, READ_BYTES, Connection, user_stamp

if TYPE_CHECKING:
    import ctypes

# A read that the loop has to look at: its socket, what epoll said of it, its bytes (None: not read yet, empty: the
# connection has ended, or the error that came instead) and their stamp.
Left = tuple[Connection, int, "bytes | OSError | None", bytes]

SLEEP_NS = 50_000  # shorter sleeps cost more than they save
EVENTS = 512


def open_reads(pool: Pool, gauge: Gauge) -> Reads:
    """The reads of these connections, in C where that can be had."""
    functions = _compiled()
    return Reads(pool, gauge) if functions is None else CompiledReads(pool, gauge, functions)


class Reads:
    """In Python. `back_ns` is when it last came back from waiting."""

    kind = "python"

    def __init__(self, pool: Pool, gauge: Gauge) -> None:
        self.pool = pool
        self.gauge = gauge
        self.back_ns = time.monotonic_ns()

    def arm(self, link: Connection) -> None:
        """`link.plain` has become known."""

    def collect(self, link: Connection) -> None:
        """Bring the stamps of an answer's plain events to its exchange."""

    def disarm(self, link: Connection) -> None:
        """The answer is over."""

    def close(self) -> None:
        """Nothing is read any more."""

    def turn(self, until_ns: int, tick_ns: int) -> list[Left]:
        """Wait until `until_ns` at most and read what comes, again and again while nothing is left to the loop.

        With `tick_ns` it looks away for so long after each look that found something.
        """
        poll, clock = self.pool.epoll.poll, time.monotonic_ns
        while True:
            called = clock()
            ready = poll(_poll_s(until_ns, called), EVENTS)
            turn_ns = called - self.back_ns
            self.back_ns = back = clock()
            left = self._read(ready, turn_ns) if ready else []
            if left or back >= until_ns:
                return left
            if ready and tick_ns:
                sleep_until(min(until_ns, back + tick_ns))

    def _read(self, ready: list[tuple[int, int]], turn_ns: int) -> list[Left]:
        """One recvmsg a socket. The three lines in its middle are a plain event, recognised without a call."""
        links = self.pool.links
        left: list[Left] = []
        first_stamp = b""
        for fd, mask in ready:
            link = links[fd]
            plain = link.plain
            if plain is None or mask != select.EPOLLIN:
                left.append((link, mask, None, b""))
                continue
            try:
                data, control, _, _ = link.recvmsg(READ_BYTES, CONTROL_BYTES)
            except OSError as error:
                left.append((link, mask, error, b""))
                continue
            if len(data) == READ_BYTES:
                self.pool.look_again(link)
            stamp = control[0][2] if control else user_stamp()
            first_stamp = first_stamp or stamp
            line, rest = SIZE_LINES[len(data)]
            text = data.removeprefix(line).removeprefix(plain.before).removesuffix(plain.suffix)
            if len(text) != rest - plain.around or QUOTE in text:
                left.append((link, mask, data, stamp))
            else:
                stamps = link.stamps
                stamps += stamp
        self.gauge.turned(first_stamp, self.back_ns, turn_ns)
        return left


def _poll_s(until_ns: int, now: int) -> float:
    """How many seconds epoll is to wait. It counts in whole milliseconds, so a shorter time is slept here."""
    wait_ns = until_ns - now
    if 0 < wait_ns < 1_000_000:
        time.sleep(wait_ns / 1e9)
        return 0.0
    return max(0, wait_ns // 1_000_000) / 1e3


def sleep_until(at_ns: int) -> None:
    """Sleep, where that is worth it."""
    rest_ns = at_ns - time.monotonic_ns()
    if rest_ns > SLEEP_NS:
        time.sleep(rest_ns / 1e9)


class CompiledReads(Reads):
    """In C. The memory that both sides share begins as `struct reads` in reads.c does."""

    kind = "c"
    _COUNTS = struct.Struct("@iiq")
    _LEFT = struct.Struct("@iIii16s")
    _TURN_BYTES = 32

    def __init__(self, pool: Pool, gauge: Gauge, functions: ctypes.CDLL) -> None:
        super().__init__(pool, gauge)
        import ctypes

        self._c = functions
        self._at = functions.uk_open(pool.epoll.fileno())
        if not self._at:
            raise MemoryError("no memory for the reads of the load generator")
        lengths = list((ctypes.c_int64 * 4).in_dll(functions, "uk_layout"))
        shared = memoryview((ctypes.c_char * sum(lengths)).from_address(self._at)).cast("B")
        ends = list(accumulate(lengths))
        self._counts, self._left, self._turns, self._data = (
            shared[end - length : end] for end, length in zip(ends, lengths, strict=True)
        )
        self._stamps = ctypes.c_void_p()
        self._stamps_at = ctypes.byref(self._stamps)
        self._bytes_at = ctypes.string_at

    def arm(self, link: Connection) -> None:
        assert link.plain is not None
        before, suffix = link.plain.before, link.plain.suffix
        self._arm(link.fd, before, suffix)

    def disarm(self, link: Connection) -> None:
        if link.plain is not None:
            self._arm(link.fd, b"", b"")

    def _arm(self, fd: int, before: bytes, suffix: bytes) -> None:
        if self._c.uk_arm(self._at, fd, before + suffix, len(before), len(suffix)):
            raise MemoryError("no memory for the reads of the load generator")

    def collect(self, link: Connection) -> None:
        if link.plain is not None and (count := self._c.uk_take(self._at, link.fd, self._stamps_at)):
            link.stamps += self._bytes_at(self._stamps.value or 0, 16 * count)

    def turn(self, until_ns: int, tick_ns: int) -> list[Left]:
        self._c.uk_turn(self._at, until_ns, tick_ns)
        left_count, turn_count, self.back_ns = self._COUNTS.unpack(self._counts)
        self.gauge.turns += self._turns[: turn_count * self._TURN_BYTES]
        return self._take_left(left_count) if left_count else []

    def _take_left(self, count: int) -> list[Left]:
        left: list[Left] = []
        links, data, at = self.pool.links, self._data, 0
        for fd, mask, length, error, stamp in self._LEFT.iter_unpack(self._left[: count * self._LEFT.size]):
            link = links[fd]
            if length > 0:
                left.append((link, mask, bytes(data[at : at + length]), stamp))
                at += length
            elif error:
                left.append((link, mask, OSError(error, os.strerror(error)), b""))
            else:
                left.append((link, mask, b"" if length == 0 else None, b""))
        return left

    def close(self) -> None:
        if self._at:
            self._counts = self._left = self._turns = self._data = memoryview(b"")
            self._c.uk_close(self._at)
            self._at = None


@lru_cache(maxsize=1)
def _compiled() -> Any:
    """reads.c as functions; None without a compiler, or where what it built may not be run."""
    source = resources.files(__package__).joinpath("reads.c").read_text(encoding="utf-8")
    library = compiler.library(source, "reads")
    if library is None:
        return None
    import ctypes

    try:
        functions = ctypes.CDLL(str(library))
    except OSError:
        return None  # a state folder that is mounted noexec
    pointer, number, wide = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    for name, returns, takes in (
        ("uk_open", pointer, [number]),
        ("uk_close", None, [pointer]),
        ("uk_arm", number, [pointer, number, ctypes.c_char_p, number, number]),
        ("uk_take", wide, [pointer, number, pointer]),
        ("uk_turn", None, [pointer, wide, wide]),
    ):
        function = getattr(functions, name)
        function.restype, function.argtypes = returns, takes
    return functions
