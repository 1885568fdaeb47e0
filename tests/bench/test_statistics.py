"""The small statistics agree with published tables and keep their promises in simulation."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.bench.statistics import holm, paired, t_cdf, t_quantile


@pytest.mark.parametrize(
    ("probability", "freedom", "table"),
    [(0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 5, 2.571), (0.995, 10, 3.169), (0.9995, 4, 8.610)],
)
def test_quantiles_are_those_of_the_printed_table(probability, freedom, table):
    assert t_quantile(probability, freedom) == pytest.approx(table, abs=6e-4)


@given(st.floats(0.5, 0.9999), st.integers(1, 500))
def test_quantile_and_distribution_are_inverse(probability, freedom):
    assert t_cdf(t_quantile(probability, freedom), freedom) == pytest.approx(probability, abs=1e-9)


def test_holm_is_the_hand_worked_example():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


def test_an_interval_covers_the_truth_as_often_as_it_says():
    dice, covered = random.Random(7), 0
    for _ in range(2000):
        ratio = paired([math.log(1.1) + dice.gauss(0, 0.05) for _ in range(5)])
        assert ratio
        low, high = ratio.interval(0.95)
        covered += low < 1.1 < high

    assert 0.93 < covered / 2000 < 0.97
