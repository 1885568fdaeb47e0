"""A run that drifts is named, and a difference of that size is not believed."""

import math
import random

import msgspec
import pytest
from tests.bench.runs import run

from uncork.bench.compare import compare
from uncork.bench.drift import over_temperature, over_time
from uncork.model.bench import BenchRun
from uncork.model.comparison import Judgement


def _timed(
    dice: random.Random, *, speed: float = 100.0, drift: float = 0.0, noise: float = 0.005, repeats: int = 5,
    per_degree: float = 0.0, at_s: float = 0.0,
) -> BenchRun:  # fmt: skip
    """Two levels in turn, a minute each; `drift` is ln of the change over the whole run."""
    made = run({name: [1.0] * repeats for name in ("c1", "c8")})
    slots, levels = 2 * repeats, []
    for level in made.levels:
        at = 2 * level.repeat + (level.level == "c8")
        degrees = 60.0 + at
        value = speed * (4 if level.level == "c8" else 1)
        value *= math.exp(drift * at / (slots - 1) + per_degree * at + dice.gauss(0, noise))
        levels.append(
            msgspec.structs.replace(
                level,
                started_unix_s=at_s + 60.0 * at,
                output_tok_s=value,
                telemetry={"gpus": {"0": {"temperature_c_mean": degrees}}},
            )
        )
    return msgspec.structs.replace(made, levels=tuple(levels))


def test_a_steady_drift_is_measured():
    found = over_time(_timed(random.Random(1), drift=-0.10))

    assert found
    assert found.p_value < 0.001
    assert found.change == pytest.approx(math.expm1(-0.10), abs=0.02)


def test_levels_of_other_speeds_are_no_drift_and_noise_is_rarely_one():
    dice = random.Random(2)
    sure = sum(trend.p_value < 0.05 for _ in range(400) if (trend := over_time(_timed(dice, noise=0.03))))

    assert 0.02 * 400 <= sure <= 0.08 * 400


def test_the_temperature_has_a_slope_of_its_own():
    found = over_temperature(_timed(random.Random(3), per_degree=-0.004, noise=0.001))

    assert found
    assert found.slope == pytest.approx(-0.004, abs=0.0005)


def test_a_difference_no_larger_than_twice_the_drift_is_not_believed():
    dice = random.Random(4)
    before, after = _timed(dice, drift=-0.06), _timed(dice, speed=92.0, at_s=900.0)
    said = compare(before, after)

    assert said.judgement is Judgement.UNCLEAR
    assert any(note.startswith("before drifted by") for note in said.notes)


def test_a_difference_far_larger_than_the_drift_stands():
    dice = random.Random(5)
    said = compare(_timed(dice, drift=-0.03), _timed(dice, speed=70.0, at_s=900.0))

    assert said.judgement is Judgement.WORSE


def test_one_repeat_has_no_drift():
    assert over_time(_timed(random.Random(6), repeats=1)) is None


def test_a_run_that_its_prefix_cache_flattered_is_not_comparable():
    before = run({"c1": [100.0, 101.0]})
    cold, warm = (
        msgspec.structs.replace(
            before, levels=tuple(msgspec.structs.replace(one, cached_tokens=n) for one in before.levels)
        )
        for n in (0, 480)
    )

    said = compare(cold, warm)

    assert said.judgement is Judgement.NOT_COMPARABLE
    assert said.differs == ("prefix cache hits: 0% of the input → 94% of the input",)
