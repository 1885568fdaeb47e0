"""Ended answers are taken apart here, between looks at the sockets; what they show sets the tick."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable

from uncork.bench.clock import stamp_ns
from uncork.bench.gauge import Gauge
from uncork.bench.records import Exchange, Record
from uncork.bench.sockets import Connection

TICK_NS = 2_000_000


class Digest:
    """The queue of ended exchanges. `keep(exchange, clock_offset_ns, blind)` makes and stores the record.

    `tick_ns` is how long the loop may look away: an eighth of the mean gap between events, so that two events
    of one answer rarely share a read; a 500th of an answer's time, so that a slot is refilled at once as far as
    concurrency goes; at most 2 ms; and a quarter of that while more than 1 % of events share a read.
    """

    def __init__(self, gauge: Gauge, keep: Callable[[Exchange, int, list[tuple[int, int]]], Record]) -> None:
        self.gauge = gauge
        self.keep = keep
        self.waiting: deque[Exchange] = deque()
        self.tick_ns = TICK_NS // 8
        self.tick_known = False
        self.events = self.merged = 0.0

    def take_apart(self, until_ns: int | None) -> None:
        """Turn ended exchanges into records, as many as fit before `until_ns` (at least one)."""
        self.gauge.settle()
        while self.waiting:
            self._learn(self.keep(self.waiting.popleft(), self.gauge.offset_ns, self.gauge.blind))
            if until_ns is not None and time.monotonic_ns() >= until_ns:
                return

    def _learn(self, record: Record) -> None:
        events = record.event_ns
        n = len(events)
        self.events = n + 0.9 * self.events  # the latest answers count most
        self.merged = record.merged + 0.9 * self.merged
        if n:
            self.tick_known = True
            gap_ns = (events[-1] - events[0]) // (n - 1) if n > 1 else 8 * TICK_NS
            self.tick_ns = min(TICK_NS, gap_ns // 8, (events[-1] - record.sent_ns) // 500)
        if self.merged * 100 > self.events:
            self.tick_ns //= 4

    def guess_tick(self, links: Iterable[Connection]) -> None:
        """Before any answer has ended: from the mean interval of the reads so far."""
        gaps = sorted(
            (stamp_ns(exchange.stamps[-16:]) - stamp_ns(exchange.stamps[16:32]))
            // (len(exchange.stamps) // 16 - 2)
            for link in links
            if (exchange := link.exchange) is not None and len(exchange.stamps) > 64
        )
        if gaps:
            self.tick_known = True
            self.tick_ns = min(TICK_NS, gaps[len(gaps) // 2] // 8)
