"""A comparison says what the repeats support, and no more."""

import random

import msgspec
from tests.bench.runs import run

from uncork.bench.compare import compare
from uncork.model.comparison import Comparison, Judgement


def _noisy(dice: random.Random, speed: float, repeats: int = 5) -> dict[str, list[float]]:
    return {
        name: [speed * k * dice.gauss(1, 0.02) for _ in range(repeats)] for name, k in (("c1", 1), ("c8", 4))
    }


def test_a_faster_server_is_improved():
    dice = random.Random(1)

    said = compare(run(_noisy(dice, 100)), run(_noisy(dice, 125)))

    assert said.judgement is Judgement.IMPROVED
    assert said.overall[0].low > 1.1


def test_a_slower_server_is_worse():
    dice = random.Random(2)

    assert compare(run(_noisy(dice, 100)), run(_noisy(dice, 80))).judgement is Judgement.WORSE


def test_one_repeat_supports_no_difference():
    said = compare(run({"c1": [100.0]}), run({"c1": [150.0]}))

    assert said.judgement is Judgement.UNCLEAR
    assert "no interval" in said.says
    assert msgspec.json.decode(msgspec.json.encode(said), type=Comparison) == said


def test_other_flags_are_not_comparable_unless_under_test():
    before, after = (
        run({"c1": [100.0, 101.0]}, fingerprint={"x": "0"}),
        run({"c1": [100.0, 101.0]}, fingerprint={"x": "1"}),
    )

    assert compare(before, after).judgement is Judgement.NOT_COMPARABLE
    assert compare(before, after).differs == ("x: 0 → 1",)
    assert compare(before, after, tested=["x"]).tested == ("x: 0 → 1",)


def test_equal_runs_are_rarely_called_different_and_a_tenth_is_mostly_found():
    dice, false_alarms, found = random.Random(3), 0, 0
    for _ in range(400):
        base = run(_noisy(dice, 100))
        false_alarms += compare(base, run(_noisy(dice, 100))).judgement in (
            Judgement.IMPROVED,
            Judgement.WORSE,
        )
        found += compare(base, run(_noisy(dice, 90))).judgement is Judgement.WORSE

    assert false_alarms <= 0.05 * 400
    assert found >= 0.9 * 400
