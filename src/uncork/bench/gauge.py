"""What the loop measures about itself: how late it looks, and when it could not look."""

from __future__ import annotations

import struct
from array import array

import msgspec

from uncork.bench.clock import STEP_NS, realtime_offset_ns

BLIND_NS = 4_000_000
SAMPLES = 32_768
NO_STAMP = bytes(16)
_TWO = struct.Struct("@qq")


class LoopFigures(msgspec.Struct):
    """What the loop measured about itself."""

    started_ns: int = 0
    ended_ns: int = 0
    cpu_ns: int = 0
    thread_ns: int = 0
    lags_ns: array = msgspec.field(default_factory=lambda: array("q"))  # type: ignore[type-arg]
    turns_ns: array = msgspec.field(default_factory=lambda: array("q"))  # type: ignore[type-arg]
    lag_max_ns: int = 0
    turn_max_ns: int = 0
    stepped: bool = False  # the wall clock was set during the level
    died: str = ""  # why the server counts as gone
    limited: bool = False  # the level's time limit ended it
    reads: str = ""  # what read the answers: c or python


class Gauge:
    """Lag and turns of one loop; `blind` lists the times in which it could not look for over BLIND_NS.

    `turns` holds four 64-bit numbers a turn: the first stamp that it read (two, zero where it had none), the clock
    when it began to read, how long it had not looked. `settle` reckons with them when there is time.
    """

    def __init__(self, figures: LoopFigures) -> None:
        self.figures = figures
        self.offset_ns = realtime_offset_ns()
        self.turns = bytearray()
        self.blind: list[tuple[int, int]] = []
        self.every = 1
        self.seen = 0

    def turned(self, first_stamp: bytes, back_ns: int, turn_ns: int) -> None:
        """Note a turn that read something."""
        self.turns += (first_stamp or NO_STAMP) + _TWO.pack(back_ns, turn_ns)

    def first_stamp(self, stamp: bytes) -> None:
        """The first stamp of the latest turn, where it had none yet."""
        if stamp and self.turns[-32:-16] == NO_STAMP:
            self.turns[-32:-16] = stamp

    def settle(self) -> None:
        """Enter the turns since the last time into the figures and into `blind`."""
        numbers, offset_ns = memoryview(self.turns).cast("q").tolist(), self.offset_ns
        self.turns = bytearray()
        lags, lengths = [], []
        for seconds, nanoseconds, back, turn_ns in zip(*[iter(numbers)] * 4, strict=True):
            if seconds:
                lag = back - (seconds * 1_000_000_000 + nanoseconds - offset_ns)
                lags.append(lag)
                if lag > turn_ns:
                    turn_ns = lag
            lengths.append(turn_ns)
            if turn_ns > BLIND_NS:
                self.blind.append((back - turn_ns, back))
        self._sample(lags, lengths)

    def _sample(self, lags: list[int], lengths: list[int]) -> None:
        """Keep the longest, and of all every n-th: where each token is a turn, sorting all would cost too much."""
        figures = self.figures
        figures.lag_max_ns = max([figures.lag_max_ns, *lags])
        figures.turn_max_ns = max([figures.turn_max_ns, *lengths])
        first = -self.seen % self.every
        self.seen += len(lengths)
        figures.lags_ns.extend(lags[first :: self.every])
        figures.turns_ns.extend(lengths[first :: self.every])
        if len(figures.turns_ns) > SAMPLES:
            del figures.lags_ns[::2], figures.turns_ns[::2]
            self.every *= 2

    def check_clock(self) -> None:
        """See whether the wall clock was set: kernel stamps are of that clock."""
        if abs(realtime_offset_ns() - self.offset_ns) > STEP_NS:
            self.figures.stepped = True
