"""What a group was worth comes from blocks, and drift over a block does not count as worth."""

import random

import pytest
from tests.bench.runs import run

from uncork.bench.attribution import Block, attribution
from uncork.bench.compare import METRICS
from uncork.model.comparison import Judgement


def _block(
    dice: random.Random, worth: float, *, drift: float = 0.0, noise: float = 0.01, at: int = 0
) -> Block:
    def one(place: int, speed: float) -> object:
        weather = 1 + drift * (4 * at + place)
        return run(
            {name: [k * speed * weather * dice.gauss(1, noise)] for name, k in (("c1", 100), ("c8", 400))}
        )

    return Block(on=(one(0, worth), one(3, worth)), off=(one(1, 1.0), one(2, 1.0)))


def _worth(blocks: list[Block]):
    return {one.metric: one for one in attribution({"apply-x": ("Set x", blocks)}).worth}


def test_a_group_worth_a_tenth_is_found_with_its_interval():
    dice = random.Random(1)
    found = _worth([_block(dice, 1.1) for _ in range(5)])

    for metric in METRICS:
        one = found[metric.name]
        truth = 1.1 if metric.higher_is_better else 1 / 1.1
        assert one.judgement is Judgement.IMPROVED
        assert one.low < truth < one.high


def test_even_drift_falls_out_of_a_block():
    dice = random.Random(2)
    found = _worth([_block(dice, 1.0, drift=0.02, noise=1e-6, at=at) for at in range(4)])

    assert found["output tokens/s"].ratio == pytest.approx(1.0, abs=2e-3)
    assert found["output tokens/s"].judgement is Judgement.EQUIVALENT


def test_one_block_gives_no_interval_and_no_verdict():
    one = _worth([_block(random.Random(3), 1.5)])["output tokens/s"]

    assert (one.low, one.high, one.judgement) == (None, None, Judgement.UNCLEAR)


def test_folklore_is_rarely_called_worth_something():
    dice, called = random.Random(4), 0
    for _ in range(150):
        groups = {f"g{n}": (f"g{n}", [_block(dice, 1.0) for _ in range(4)]) for n in range(3)}
        found = attribution(groups).worth
        called += any(one.judgement in (Judgement.IMPROVED, Judgement.WORSE) for one in found)

    assert called <= 0.08 * 150  # 5 % of families, and the chance of 150 draws


def test_without_blocks_it_says_that_nothing_was_measured():
    assert attribution({}).says == "no group was measured"
