"""Warm-up by evidence: ask until answers are steady, so that no level pays for what the server does once."""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from uncork.bench import metrics
from uncork.bench.records import Record
from uncork.bench.spec import Level
from uncork.bench.target import Target, refused

WAVES = 20
STEADY = 3  # waves in a row
WITHIN = 0.10  # of their median
LIMIT_S = 30.0
SHORT = 32  # tokens of a warm-up answer
SHARE = 0.2

Ask = Callable[[Level, int, int, int], list[Record]]  # level, seed, requests, output tokens


class Wave(msgspec.Struct, frozen=True):
    """One wave of the warm-up: median time per answer."""

    e2e_ms: float
    ttft_ms: float


def warm_up(
    target: Target, level: Level, ask: Ask, *, rounds: float, limit_s: float = LIMIT_S
) -> dict[str, Any]:
    """Send small waves until the medians of the last three lie within a tenth of each other.

    `rounds` is how many answers in a row the suite will take: a warm-up ends after a fifth of that time, though not
    before three waves.
    What was seen is stored with the run: a server that never became steady is named there, not hidden.
    Raises `MeasureFailed` where the server refuses every request.
    """
    began_s = time.monotonic()
    width = min(level.concurrency or 4, 8)
    _, output_len = target.sizes(level)
    waves: list[Wave] = []
    steady = False
    small = msgspec.structs.replace(level, concurrency=width, arrival="closed", rate_s=None)
    while len(waves) < WAVES and time.monotonic() - began_s < limit_s and not steady:
        records = ask(small, 1_000_000 + len(waves), width, min(output_len, SHORT))
        wave = _wave(records, target)
        if wave is None:
            break
        waves.append(wave)
        if len(waves) >= STEADY:
            limit_s = min(limit_s, SHARE * rounds * wave.e2e_ms / 1e3)
        target.e2e_ns = round(wave.e2e_ms * 1e6 * output_len / min(output_len, SHORT))
        steady = _steady([wave.e2e_ms for wave in waves[-STEADY:]])
    lengths = target.lengths
    return {
        "steady": steady,
        "waves": [msgspec.to_builtins(wave) for wave in waves],
        "spent_s": round(time.monotonic() - began_s, 3),
        "lengths": {"source": lengths.source, "overhead": lengths.overhead, "per_word": lengths.per_word},
    }


def _wave(records: list[Record], target: Target) -> Wave | None:
    """Medians of one wave; None where nothing was answered. Raises `MeasureFailed` on a refusal."""
    done = [record for record in records if record.outcome == "ok"]
    e2e = metrics.distribution(metrics.e2e_ns(record) or 0 for record in done)
    ttft = metrics.distribution(metrics.ttft_ns(record) or 0 for record in done)
    if e2e is None or ttft is None:
        if records and records[0].outcome == "http-status":
            raise refused(target.endpoints[0], records[0].status, records[0].detail)
        return None
    return Wave(e2e.p50 / 1e6, ttft.p50 / 1e6)


def _steady(latest: list[float]) -> bool:
    middle = sorted(latest)[len(latest) // 2]
    return len(latest) == STEADY and all(abs(value - middle) <= WITHIN * middle for value in latest)
