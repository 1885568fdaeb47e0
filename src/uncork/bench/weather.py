"""What a change was worth on a host whose speed wanders: a step between two sets of levels, given when each ran.

Repeats that follow each other share the host's weather, so their spread says little of how far two runs drift apart
by themselves. How strong and how slow the weather is here is not known; the answer is therefore averaged over several
kinds of it, each weighted by how well it explains the measured levels (the restricted likelihood of Patterson and
Thompson 1971): noise without memory, and noise in part or whole of a walk that forgets within 5, 20 or 60 levels
(an Ornstein-Uhlenbeck process). Levels of before and after that were measured by turns gain from it: what drifts
is seen to drift.

Neighbours on a shared host come in bursts, which no such process has. With six figures a side or more, those further
than two spreads from the median of their side are drawn in to that distance, and the uncertainty grows by their share:
the winsorised mean of Tukey and McLaughlin (1963).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from operator import mul
from statistics import median

import msgspec

from uncork.bench.statistics import t_cdf, t_quantile

# Share of the walk in the noise, and how many levels it remembers, all taken to be equally likely beforehand.
WEATHERS = ((0.0, 1.0), *((share, memory) for memory in (5.0, 20.0, 60.0) for share in (0.5, 0.8, 1.0)))
_NEGLIGIBLE = 1e-6
ENOUGH_FOR_SPREAD = 6
SPREADS = 2.0
_MAD_OF_NORMAL = 1.4826  # the standard deviation of normal noise by its median absolute deviation

_OWN = 1e-9
_ROUNDING = 1e-24

Row = tuple[float, ...]


class Point(msgspec.Struct, frozen=True):
    """ln of a figure of one level: its name, whether it is of the run after, and when it began."""

    level: str
    after: bool
    at: float
    value: float


class Kind(msgspec.Struct, frozen=True):
    """One kind of weather: its weight, the step under it, the step's standard error."""

    weight: float
    mean: float
    error: float


class Step(msgspec.Struct, frozen=True):
    """ln(after / before), the mean over the levels; answers as a `LogRatio` does."""

    kinds: tuple[Kind, ...]
    freedom: int

    @property
    def mean(self) -> float:
        """The expected step."""
        return sum(kind.weight * kind.mean for kind in self.kinds)

    @property
    def error(self) -> float:
        """The standard error, of what is uncertain about the weather as well."""
        mean = self.mean
        return math.sqrt(sum(one.weight * (one.error**2 + (one.mean - mean) ** 2) for one in self.kinds))

    def below(self, log: float) -> float:
        """How likely the true step is below this."""
        return sum(one.weight * t_cdf((log - one.mean) / one.error, self.freedom) for one in self.kinds)

    def p_value(self) -> float:
        """Two-sided, of no difference."""
        below = self.below(0.0)
        return min(1.0, 2 * min(below, 1 - below))

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ratio's interval at this confidence."""
        tail = (1 - confidence) / 2
        return math.exp(self._quantile(tail)), math.exp(self._quantile(1 - tail))

    def _quantile(self, probability: float) -> float:
        """Bisection between the quantiles of the kinds, among which it lies."""
        reach = t_quantile(max(probability, 1 - probability), self.freedom)
        sign = 1 if probability > 0.5 else -1
        ends = [one.mean + sign * reach * one.error for one in self.kinds]
        low, high = min(ends), max(ends)
        while high - low > 1e-5:
            middle = (low + high) / 2
            low, high = (middle, high) if self.below(middle) < probability else (low, middle)
        return (low + high) / 2


def step(points: Sequence[Point]) -> Step | None:
    """The step between the two sides; None where a level has fewer than two points on a side."""
    known = sorted(points, key=lambda one: one.at)
    cells = [(one.level, one.after) for one in known]
    levels = sorted({one.level for one in known})
    if not known or any(cells.count((level, side)) < 2 for level in levels for side in (False, True)):
        return None
    fits = _fits(_places(known), tuple(cells))
    values = _without_bursts(known)
    freedom = len(known) - 2 * len(levels)
    found = [(fit, *_fitted(fit, values)) for fit in fits]
    logs = [fit.log_volume - freedom / 2 * math.log(square) for fit, _, square in found]
    heights = [math.exp(log - max(logs)) for log in logs]
    kinds = [
        Kind(height / sum(heights), mean, math.sqrt(square / freedom * fit.variance))
        for height, (fit, mean, square) in zip(heights, found, strict=True)
    ]
    return Step(tuple(one for one in kinds if one.weight > _NEGLIGIBLE), freedom)


def _without_bursts(known: Sequence[Point]) -> list[float]:
    """The figures, those far from the median of their level and side drawn in."""
    sides: dict[tuple[str, bool], list[float]] = {}
    for one in known:
        sides.setdefault((one.level, one.after), []).append(one.value)
    values, count = [one.value for one in known], len(known)
    if min(map(len, sides.values())) < ENOUGH_FOR_SPREAD:
        return values
    middles = [median(sides[one.level, one.after]) for one in known]
    away = [value - middle for value, middle in zip(values, middles, strict=True)]
    spread = _MAD_OF_NORMAL * median(map(abs, away)) * count / (count - len(sides))
    reach = SPREADS * spread
    near = sum(abs(one) <= reach for one in away) / count
    if not spread or near == 1:
        return values
    return [middle + max(-reach, min(reach, one)) / near for middle, one in zip(middles, away, strict=True)]


class _Fit(msgspec.Struct, frozen=True):
    """A kind of weather prepared for these places: all that does not depend on the figures."""

    root: list[Row]  # Cholesky's, of the correlations
    base: list[Row]  # orthonormal columns of the whitened means
    direction: Row  # the step is its product with the whitened figures
    variance: float  # of the step, for noise of variance 1
    log_volume: float


@lru_cache(maxsize=64)
def _fits(places: Row, cells: tuple[tuple[str, bool], ...]) -> tuple[_Fit, ...]:
    return tuple(_fit(places, cells, share, memory) for share, memory in WEATHERS)


def _fit(places: Row, cells: tuple[tuple[str, bool], ...], share: float, memory: float) -> _Fit:
    """Generalised least squares with a mean of its own for each level and side."""
    root = _root(places, share, memory)
    names = sorted(set(cells))
    columns = [_whitened(root, [float(cell == name) for cell in cells]) for name in names]
    base, triangle = _orthonormal(columns)
    # The step is c·means with means = R⁻¹ Qᵀ z, so it is (R⁻ᵀ c)·Qᵀ z; Rᵀ is lower, as a root is.
    share_each = 2 / len(names)
    weights = _whitened(triangle, [share_each if after else -share_each for _, after in names])
    direction = tuple(_dot(weights, row) for row in zip(*base, strict=True))
    log_volume = -sum(math.log(row[at]) for rows in (root, triangle) for at, row in enumerate(rows))
    return _Fit(root, base, direction, _dot(weights, weights), log_volume)


def _fitted(fit: _Fit, values: Sequence[float]) -> tuple[float, float]:
    """The step, and the square of what the means leave over."""
    white = _whitened(fit.root, values)
    left = list(white)
    for column in fit.base:
        part = _dot(column, white)
        left = [one - part * other for one, other in zip(left, column, strict=True)]
    # A series without any spread still has that of its rounding.
    return _dot(fit.direction, white), max(_dot(left, left), _ROUNDING)


def _places(known: Sequence[Point]) -> Row:
    """When each began, in typical distances between two; their order where the times are not known."""
    gaps = [later.at - earlier.at for earlier, later in pairwise(known)]
    unit = median(gaps)
    if unit <= 0:
        return tuple(float(place) for place in range(len(known)))
    return tuple(round((one.at - known[0].at) / unit, 6) for one in known)


def _root(places: Row, share: float, memory: float) -> list[Row]:
    """The lower triangle whose product with its transpose is the correlation between the places."""
    rows: list[Row] = []
    for at in places:
        row: list[float] = []
        for there, other in enumerate(rows):
            wanted = share * math.exp((places[there] - at) / memory)
            row.append((wanted - _dot(row, other[:there])) / other[there])
        # Two places at the same time are not the same figure: a little of the noise is always its own.
        row.append(math.sqrt(max(1 - _dot(row, row), _OWN)))
        rows.append(tuple(row))
    return rows


def _whitened(root: list[Row], values: Sequence[float]) -> Row:
    """The values with their correlation taken out: root⁻¹ · values."""
    white: list[float] = []
    for row, value in zip(root, values, strict=True):
        white.append((value - _dot(row[:-1], white)) / row[-1])
    return tuple(white)


def _orthonormal(columns: list[Row]) -> tuple[list[Row], list[Row]]:
    """Gram-Schmidt: orthonormal columns, and the lower triangle Rᵀ that makes the given ones of them."""
    base: list[Row] = []
    triangle: list[Row] = []
    for column in columns:
        row: list[float] = []
        for one in base:
            row.append(_dot(one, column))
            column = tuple(a - row[-1] * b for a, b in zip(column, one, strict=True))
        row.append(math.sqrt(_dot(column, column)))
        base.append(tuple(value / row[-1] for value in column))
        triangle.append(tuple(row))
    return base, triangle


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return float(sum(map(mul, one, other)))
