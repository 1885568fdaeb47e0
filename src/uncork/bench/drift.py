"""Whether a run drifted while it was measured: with time, and with the temperature of the hottest GPU.

Both are a straight line through ln(tokens/s) with a level of its own for each level (fixed effects), so that fast
levels do not pass for a trend. It is told to the reader; what it means for a difference is in weather.py.
"""

import math
from collections.abc import Callable, Iterable
from statistics import fmean

import msgspec

from uncork.bench.statistics import t_cdf
from uncork.model.bench import BenchRun, LevelResult

SURE = 0.01  # two runs are asked each time: 2 % of quiet comparisons get a note
NOTABLE_C = 5.0


class Trend(msgspec.Struct, frozen=True):
    """A slope of ln(tokens/s), what it makes over the range that was seen, and its two-sided p value."""

    slope: float
    change: float  # exp(slope · range) − 1
    p_value: float


def over_time(run: BenchRun) -> Trend | None:
    """The trend of output tokens/s from the first to the last level; None where it cannot be told."""
    return _trend(run, lambda level: level.started_unix_s)


def over_temperature(run: BenchRun) -> Trend | None:
    """The trend of output tokens/s with the mean temperature (°C) of the hottest GPU; None without telemetry."""
    return _trend(run, temperature_c)


def temperature_c(level: LevelResult) -> float | None:
    """The mean temperature of the hottest GPU during a level; None where it was not read."""
    gpus = level.telemetry.get("gpus", {})
    seen = [one["temperature_c_mean"] for one in gpus.values() if "temperature_c_mean" in one]
    return max(seen, default=None)


def notes(name: str, run: BenchRun) -> list[str]:
    """What a reader should know of a run's drift; nothing where none is sure."""
    said = []
    time, heat = over_time(run), over_temperature(run)
    if time and time.p_value < SURE:
        said.append(f"{name} drifted by {time.change:+.1%} while it ran (p {time.p_value:.2g})")
    if heat and heat.p_value < SURE:
        said.append(f"{name}: tokens/s moved by {math.expm1(heat.slope):+.2%} per °C (p {heat.p_value:.2g})")
    return said


def in_turns(before: BenchRun, after: BenchRun) -> bool:
    """Whether the runs were measured by turns: each began before the other had ended."""
    old, new = ([level.started_unix_s for level in run.levels] for run in (before, after))
    return bool(old and new) and min(old) < max(new) and min(new) < max(old)


def warmer(before: BenchRun, after: BenchRun) -> list[str]:
    """A note where the GPUs were notably warmer in one of the runs."""
    means = [
        fmean(seen) if (seen := [t for one in run.levels if (t := temperature_c(one)) is not None]) else None
        for run in (before, after)
    ]
    old, new = means
    if old is None or new is None or abs(new - old) < NOTABLE_C:
        return []
    return [f"the hottest GPU was at {old:.0f} °C before and {new:.0f} °C after"]


def _trend(run: BenchRun, read: Callable[[LevelResult], float | None]) -> Trend | None:
    points: dict[str, list[tuple[float, float]]] = {}
    for level in run.levels:
        x = read(level)
        if level.valid and level.output_tok_s > 0 and x is not None:
            points.setdefault(level.level, []).append((x, math.log(level.output_tok_s)))
    pairs = [pair for one in points.values() for pair in _centred(one)]
    freedom = len(pairs) - len(points) - 1
    square = sum(x * x for x, _ in pairs)
    if freedom < 2 or square <= 0:
        return None
    slope = sum(x * y for x, y in pairs) / square
    left = sum((y - slope * x) ** 2 for x, y in pairs)
    error = math.sqrt(left / freedom / square)
    t = abs(slope) / error if error else math.inf if slope else 0.0
    xs = [x for one in points.values() for x, _ in one]
    p_value = 2 * (1 - t_cdf(t, freedom)) if math.isfinite(t) else 0.0
    return Trend(slope, math.expm1(slope * (max(xs) - min(xs))), p_value)


def _centred(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    known = list(points)
    x_mean, y_mean = fmean(x for x, _ in known), fmean(y for _, y in known)
    return [(x - x_mean, y - y_mean) for x, y in known]
