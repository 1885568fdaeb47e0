"""The step between two runs, on hosts with and without a drift of their own."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.bench.weather import Point, step


def _walk(dice: random.Random, count: int, correlation: float) -> list[float]:
    """Noise of standard deviation 0.03 that remembers its neighbours."""
    values = [dice.gauss(0, 0.03)]
    while len(values) < count:
        fresh = math.sqrt(1 - correlation**2) * dice.gauss(0, 0.03)
        values.append(correlation * values[-1] + fresh)
    return values


def _points(
    values: list[float], change: float = 0.0, *, in_turns: bool = False, levels: int = 2
) -> list[Point]:
    sides = [(i // levels) % 2 == 1 if in_turns else i >= len(values) // 2 for i in range(len(values))]
    return [
        Point(f"c{i % levels}", side, 10.0 * i, value + change * side)
        for i, (value, side) in enumerate(zip(values, sides, strict=True))
    ]


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("repeats", [3, 6])
def test_a_drift_is_rarely_taken_for_a_change(correlation, repeats):
    dice = random.Random(f"{correlation}/{repeats}")
    called = sum(
        step(_points(_walk(dice, 4 * repeats, correlation))).p_value() < 0.05 / 3 for _ in range(400)
    )

    assert called <= 0.05 * 400 + 1.65 * math.sqrt(400 * 0.05 * 0.95)  # 95 % of experiments at a rate of 5 %


def test_what_was_measured_in_turns_shows_a_small_change_through_a_drift():
    dice, one_after_the_other, in_turns = random.Random(2), 0, 0
    for _ in range(200):
        values = _walk(dice, 24, 0.95)
        one_after_the_other += step(_points(values, 0.02)).p_value() < 0.05
        in_turns += step(_points(values, 0.02, in_turns=True)).p_value() < 0.05

    assert in_turns > 160
    assert one_after_the_other < 120


def test_its_interval_covers_the_truth():
    dice, covered = random.Random(3), 0
    for _ in range(300):
        low, high = step(_points(_walk(dice, 20, 0.8), 0.1)).interval(0.95)
        covered += low < math.exp(0.1) < high

    assert covered >= 0.93 * 300


def test_a_quantile_leaves_its_share_below():
    found = step(_points(_walk(random.Random(4), 12, 0.5), 0.1))
    low, high = (math.log(end) for end in found.interval(0.9))

    assert (found.below(low), found.below(high)) == pytest.approx((0.05, 0.95), abs=1e-3)


def test_one_figure_a_side_gives_no_step():
    assert step(_points([0.0, 0.0, 0.1, 0.1])) is None
    assert step([]) is None


def test_equal_figures_are_no_difference_and_other_equal_figures_a_sure_one():
    assert step(_points([0.5] * 12)).p_value() == pytest.approx(1.0, abs=0.01)
    assert step(_points([0.5] * 12, 0.2)).p_value() < 1e-6


@given(st.lists(st.floats(-0.5, 0.5), min_size=12, max_size=12), st.floats(0.1, 1e6))
def test_neither_the_unit_of_time_nor_of_the_figure_matters(values, unit):
    values = [value + 0.01 * i % 0.03 for i, value in enumerate(values)]
    one = step(_points(values))
    points = [Point(p.level, p.after, unit * p.at, p.value + 2.0) for p in _points(values)]

    assert step(points).p_value() == pytest.approx(one.p_value(), abs=1e-3)


def test_a_burst_counts_only_as_far_as_two_spreads():
    dice = random.Random(5)
    quiet = [dice.gauss(0, 0.03) for _ in range(24)]
    burst = [value + (0.5 if i == 4 else 0.0) for i, value in enumerate(quiet)]
    calm, disturbed = (step(_points(values, 0.1, in_turns=True)) for values in (quiet, burst))

    assert abs(disturbed.mean - calm.mean) < 0.02
    assert disturbed.error < 1.5 * calm.error
    assert disturbed.p_value() < 0.001
