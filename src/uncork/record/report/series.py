"""What the curves show: per level, the mean over repeats, its interval, and the bound's tiers."""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, stdev

import msgspec

from uncork.bench.statistics import t_quantile
from uncork.bound import levels as bound_levels
from uncork.bound.levels import Against
from uncork.errors import UncorkError
from uncork.model.bench import BenchRun, LevelResult
from uncork.model.imported import Imported
from uncork.record.report.story import Story

LEAST_REPEATS = 3  # of fewer the lowest and the highest are shown: an interval from two covers anything
CONFIDENCE = 0.95

Read = Callable[[LevelResult], float | None]


class Point(msgspec.Struct, frozen=True):
    """One level: `x` users at once, the geometric mean over `n` repeats, and from where to where it may lie."""

    x: int
    y: float
    low: float
    high: float
    n: int


class Curve(msgspec.Struct, frozen=True):
    """A line of a chart; `index` gives it the same colour and mark in every chart."""

    label: str
    points: tuple[Point, ...]
    index: int = 0


def output_tok_s(level: LevelResult) -> float | None:
    return level.output_tok_s or None


def ttft_p50_ms(level: LevelResult) -> float | None:
    return level.ttft_ms.p50 if level.ttft_ms else None


def tpot_ms(level: LevelResult) -> float | None:
    return level.tpot_ms.mean if level.tpot_ms else None


def p99_itl_ms(level: LevelResult) -> float | None:
    return level.itl_ms.p99 if level.itl_ms else None


def curves(stories: Sequence[Story], read: Read) -> tuple[Curve, ...]:
    """Before and after of every story, as far as they were measured; labels tell several stories apart."""
    found = []
    index = 0
    for story in stories:
        head = f"{story.name} " if len(stories) > 1 else ""
        for name, run in (("before", story.before), ("after", story.after)):
            only = name == "before" and story.after is None
            label = f"{head}{'measured' if only else name}"
            if run is not None and (points := points_of(run, read)):
                found.append(Curve(label, points, index))
            index += run is not None
        if points := imported_points(story, read):
            found.append(Curve(f"{head}{story.imported[0].tool}", points, index))
        index += bool(story.imported)
    return tuple(found)


_FOREIGN: dict[Read, Callable[[Imported], float | None]] = {
    output_tok_s: lambda level: level.output_tok_s,
    ttft_p50_ms: lambda level: level.ttft.median_ms,
    tpot_ms: lambda level: level.tpot.mean_ms,
    p99_itl_ms: lambda level: level.itl.p99_ms,
}


def imported_points(story: Story, read: Read = output_tok_s) -> tuple[Point, ...]:
    """What another tool measured; a level that does not say how many requests were at once has no place."""
    by_users: dict[int, list[float]] = {}
    for level in story.imported:
        value = _FOREIGN[read](level)
        if level.max_concurrency and value and value > 0:
            by_users.setdefault(level.max_concurrency, []).append(value)
    return tuple(_point(users, values) for users, values in sorted(by_users.items()))


def points_of(run: BenchRun, read: Read) -> tuple[Point, ...]:
    """A point for each number of users at once, over the valid repeats of its mixed level."""
    by_users: dict[int, list[float]] = {}
    for level in run.levels:
        value = read(level)
        if level.valid and level.concurrency and level.phase == "mixed" and value and value > 0:
            by_users.setdefault(level.concurrency, []).append(value)
    return tuple(_point(users, values) for users, values in sorted(by_users.items()))


def _point(users: int, values: Sequence[float]) -> Point:
    logs = [math.log(value) for value in values]
    middle = fmean(logs)
    if len(values) < LEAST_REPEATS:
        mean = math.exp(middle)  # of a single value it may differ from it in the last bit
        return Point(users, mean, min(mean, *values), max(mean, *values), len(values))
    reach = t_quantile(0.5 + CONFIDENCE / 2, len(values) - 1) * stdev(logs) / math.sqrt(len(values))
    return Point(users, math.exp(middle), math.exp(middle - reach), math.exp(middle + reach), len(values))


def against(story: Story, run: BenchRun | None) -> tuple[Against, ...]:
    """The levels of a run beside their bounds, lowest first; none where a bound cannot be computed."""
    if run is None or story.limits is None:
        return ()
    limits = story.limits
    try:
        mixed = [level for level in run.levels if level.phase == "mixed"]
        measured = bound_levels.measured_in(msgspec.structs.replace(run, levels=tuple(mixed)))
        rows = bound_levels.against(limits.model, limits.hardware, limits.parallel, measured)
    except UncorkError:
        return ()
    return tuple(sorted(rows, key=lambda row: row.measured.concurrency))


def tiers(rows: Iterable[Against]) -> tuple[Curve, ...]:
    """The three tiers over users at once; a tier that equals the one above it is left out."""
    rows = tuple(rows)
    found: list[Curve] = []
    for name in ("silicon", "fabric", "engine"):
        values = [(row.measured.concurrency, getattr(row.bound, name).tok_s) for row in rows]
        points = tuple(Point(users, value, value, value, 0) for users, value in values)
        if points and not (found and [p.y for p in found[-1].points] == [p.y for p in points]):
            found.append(Curve(f"{name} tier", points))
    return tuple(found)
