"""Intervals for the ratio of two small sets of repeats.

A repeat of a whole level is the unit: requests inside one run share its weather and are not independent.
Throughput and latency vary in proportion to their size, so differences are taken between logarithms and read
as ratios; Welch's form allows the two runs different spreads.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance

import msgspec


class LogRatio(msgspec.Struct, frozen=True):
    """The difference of mean logarithms, its standard error and its degrees of freedom (Welch-Satterthwaite)."""

    mean: float
    error: float
    freedom: float

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ratio's interval at this confidence."""
        reach = t_quantile(0.5 + confidence / 2, self.freedom) * self.error
        return math.exp(self.mean - reach), math.exp(self.mean + reach)

    def p_value(self) -> float:
        """Two-sided, of no difference."""
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return 2 * (1 - t_cdf(abs(self.mean) / self.error, self.freedom))


def log_ratio(before: Sequence[float], after: Sequence[float]) -> LogRatio | None:
    """The log ratio of two samples of positive numbers; None where either has fewer than two."""
    if min(len(before), len(after)) < 2 or min(*before, *after) <= 0:
        return None
    old, new = [math.log(x) for x in before], [math.log(x) for x in after]
    parts = (variance(old) / len(old), variance(new) / len(new))
    total = sum(parts)
    spread = parts[0] ** 2 / (len(old) - 1) + parts[1] ** 2 / (len(new) - 1)
    freedom = total**2 / spread if spread else float(len(old) + len(new) - 2)
    return LogRatio(fmean(new) - fmean(old), math.sqrt(total), freedom)


def paired(logs: Sequence[float]) -> LogRatio | None:
    """The mean of log ratios that were each measured in one block; None of fewer than two blocks."""
    if len(logs) < 2:
        return None
    return LogRatio(fmean(logs), math.sqrt(variance(logs) / len(logs)), float(len(logs) - 1))


def pooled(ratios: Sequence[LogRatio]) -> LogRatio | None:
    """The mean of independent log ratios (one a level), each level counting the same; None of none."""
    if not ratios:
        return None
    count = len(ratios)
    squares = [ratio.error**2 for ratio in ratios]
    total = sum(squares)
    spread = sum(square**2 / ratio.freedom for square, ratio in zip(squares, ratios, strict=True))
    freedom = total**2 / spread if spread else sum(ratio.freedom for ratio in ratios)
    return LogRatio(fmean(ratio.mean for ratio in ratios), math.sqrt(total) / count, freedom)


def holm(p_values: Sequence[float]) -> list[float]:
    """P values corrected for how many were asked (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, worst = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        worst = max(worst, min(1.0, p_values[index] * (len(p_values) - place)))
        corrected[index] = worst
    return corrected


def t_cdf(t: float, freedom: float) -> float:
    """Student's distribution function, through the incomplete beta function."""
    tail = 0.5 * _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1 - tail if t >= 0 else tail


def t_quantile(probability: float, freedom: float) -> float:
    """The t with `t_cdf(t) == probability` (probability at least one half).

    Newton's steps from the normal quantile: the distribution function is concave there and the start lies left
    of the root, so the steps rise to it and cannot overshoot.
    """
    t = NormalDist().inv_cdf(probability)
    height = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(
        freedom * math.pi
    )
    for _ in range(200):
        density = height * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = (probability - t_cdf(t, freedom)) / density
        t += step
        if abs(step) <= 1e-10 * max(1.0, t):
            break
    return t


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised I_x(a, b) by its continued fraction (NIST DLMF 8.17.22), Lentz's method."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, its mirror image is fast
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    tiny, c, d, result = 1e-300, 1.0, 0.0, 1.0
    for step in range(500):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 / ((1 + term * d) or tiny)
        c = (1 + term / c) or tiny
        result *= c * d
        if step and abs(1 - c * d) < 1e-14:
            break
    return front * (result - 1) / a
