"""Intervals for ratios, and what is common to all of them.

A repeat of a whole level is the unit: requests inside one run share its weather and are not independent.
Throughput and latency vary in proportion to their size, so differences are taken between logarithms and read
as ratios.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean, variance

import msgspec


class LogRatio(msgspec.Struct, frozen=True):
    """A mean difference of logarithms, its standard error and its degrees of freedom."""

    mean: float
    error: float
    freedom: int

    def interval(self, confidence: float) -> tuple[float, float]:
        """The ratio's interval at this confidence."""
        reach = t_quantile(0.5 + confidence / 2, self.freedom) * self.error
        return math.exp(self.mean - reach), math.exp(self.mean + reach)

    def below(self, log: float) -> float:
        """How likely the true log ratio is below this."""
        if self.error == 0:
            return float(self.mean < log)
        return t_cdf((log - self.mean) / self.error, self.freedom)

    def p_value(self) -> float:
        """Two-sided, of no difference."""
        if self.error == 0:
            return 1.0 if self.mean == 0 else 0.0
        return 2 * (1 - t_cdf(abs(self.mean) / self.error, self.freedom))


def paired(logs: Sequence[float]) -> LogRatio | None:
    """The mean of log ratios that were each measured in one block; None of fewer than two blocks."""
    if len(logs) < 2:
        return None
    return LogRatio(fmean(logs), math.sqrt(variance(logs) / len(logs)), len(logs) - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """P values corrected for how many were asked (Holm 1979), in the order given."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected, worst = [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        worst = max(worst, min(1.0, p_values[index] * (len(p_values) - place)))
        corrected[index] = worst
    return corrected


def t_cdf(t: float, freedom: int) -> float:
    """Student's distribution function (Abramowitz and Stegun 26.7.3 and 26.7.4, exact for whole degrees)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine_2 = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for step in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine_2 * (step - 1) / step
    inside = math.sin(angle) * total
    return 0.5 + ((angle + inside) / math.pi if odd else inside / 2)


def t_quantile(probability: float, freedom: int) -> float:
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
