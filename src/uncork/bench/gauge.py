"""What the loop measures about itself: how late it looks, and when it could not look."""

from __future__ import annotations

from array import array

import msgspec

from uncork.bench.clock import NO_KERNEL, STEP_NS, realtime_offset_ns, stamp_ns

BLIND_NS = 4_000_000
SAMPLES = 1_000_000


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


class Gauge:
    """Lag and turns of one loop; `blind` lists the times in which it could not look for over BLIND_NS.

    The loop adds to `turns` and nothing more: the first stamp a turn read, the clock when it began to read, how
    long it had not looked. `settle` reckons with them when there is time.
    """

    def __init__(self, figures: LoopFigures) -> None:
        self.figures = figures
        self.offset_ns = realtime_offset_ns()
        self.turns: list[tuple[bytes, int, int]] = []
        self.blind: list[tuple[int, int]] = []

    def settle(self) -> None:
        """Enter the turns since the last time into the figures and into `blind`."""
        figures = self.figures
        lags, lengths = figures.lags_ns, figures.turns_ns
        for stamp, back, turn_ns in self.turns:
            if stamp and stamp[:8] != NO_KERNEL:
                lag = back - (stamp_ns(stamp) - self.offset_ns)
                if lag > 0 and len(lags) < SAMPLES:
                    lags.append(lag)
                turn_ns = max(turn_ns, lag)
                figures.lag_max_ns = max(figures.lag_max_ns, lag)
            if len(lengths) < SAMPLES:
                lengths.append(turn_ns)
            if turn_ns > BLIND_NS:
                self.blind.append((back - turn_ns, back))
            figures.turn_max_ns = max(figures.turn_max_ns, turn_ns)
        self.turns.clear()

    def check_clock(self) -> None:
        """See whether the wall clock was set: kernel stamps are of that clock."""
        if abs(realtime_offset_ns() - self.offset_ns) > STEP_NS:
            self.figures.stepped = True
