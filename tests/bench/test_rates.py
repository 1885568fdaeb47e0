"""Verdicts are as rarely wrong as docs/compare.md says, by simulation with the real code."""

import importlib.util
import math
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "compare_rates.py"
TRIALS = 120


@pytest.fixture(scope="module")
def rates():
    where = importlib.util.spec_from_file_location("compare_rates", PROGRAM)
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module.rates


def at_most(rate: float) -> float:
    """The share that 99 of 100 experiments stay below when this is the true rate."""
    return rate + 2.33 * math.sqrt(rate * (1 - rate) / TRIALS)


@pytest.mark.parametrize("noise", [0.03, 0.06])
@pytest.mark.parametrize(("correlation", "in_turns"), [(0.0, False), (0.95, False), (0.95, True)])
def test_an_unchanged_server_is_rarely_called_changed(rates, noise, correlation, in_turns):
    called, _ = rates(TRIALS, 3, noise, correlation=correlation, in_turns=in_turns)

    assert called <= at_most(0.05)


def test_in_turns_a_change_is_found_through_a_drift_that_hides_it_otherwise(rates):
    _, found = rates(TRIALS, 5, 0.06, slower=0.05, correlation=0.95, in_turns=True)
    _, hidden = rates(TRIALS, 5, 0.06, slower=0.05, correlation=0.95)

    assert found > hidden + 0.2


def test_bursts_of_a_neighbour_are_neither_taken_for_a_change_nor_hide_one(rates):
    assert rates(TRIALS, 10, 0.03, bursts=True, in_turns=True)[0] <= at_most(0.05)
    assert rates(TRIALS, 10, 0.03, slower=0.10, bursts=True, in_turns=True)[1] > 0.8


def test_a_tenth_is_found_on_a_quiet_host(rates):
    assert rates(TRIALS, 5, 0.01, slower=0.10)[1] == 1.0
