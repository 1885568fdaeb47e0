"""When requests of an open loop are sent: drawn before the run, never moved by what the server does."""

import random

from uncork.bench.spec import Level


def arrival_times_ns(level: Level, count: int, seed: int, trace_s: tuple[float, ...] = ()) -> tuple[int, ...]:
    """Send times after the start, ascending; the first is 0 for constant arrivals.

    Poisson has exponential gaps; gamma has gaps of the same mean and shape `burstiness` (below 1 burstier).
    A trace keeps its own times, divided by `rate_s` where one is given (2 replays twice as fast).
    """
    rate_s = level.rate_s or 1.0
    if level.arrival == "trace":
        speed = level.rate_s or 1.0
        return tuple(sorted(round((at - min(trace_s)) / speed * 1e9) for at in trace_s[:count]))
    if level.arrival == "constant":
        return tuple(round(i / rate_s * 1e9) for i in range(count))
    chance = random.Random(f"uncork-arrivals-{seed}")
    shape = level.burstiness if level.arrival == "gamma" else 1.0
    times, at = [], 0.0
    for _ in range(count):
        at += chance.gammavariate(shape, 1 / (rate_s * shape))
        times.append(round(at * 1e9))
    return tuple(times)
