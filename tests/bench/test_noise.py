"""The noise floor is what two runs of an unchanged server differ by, and a comparison stays above it."""

import json
import math
import random

import msgspec
import pytest
from tests.bench.runs import run
from typer.testing import CliRunner

from uncork.bench.compare import compare
from uncork.bench.noise import floors, noise, smallest
from uncork.bench.reference_server import reference_server
from uncork.errors import MeasureFailed
from uncork.model.comparison import Judgement
from uncork.model.noise import Noise

CALLED = (Judgement.IMPROVED, Judgement.WORSE)


def _run(dice: random.Random, *, between: float, within: float, repeats: int = 3):
    weather = dice.gauss(0, between)

    def value(speed: float) -> float:
        return speed * math.exp(weather + dice.gauss(0, within))

    return run({name: [value(speed) for _ in range(repeats)] for name, speed in (("c1", 100), ("c8", 400))})


def test_both_parts_of_the_noise_are_found():
    dice = random.Random(1)
    found = noise([_run(dice, between=0.05, within=0.02, repeats=5) for _ in range(200)]).floors[0]

    assert found.between == pytest.approx(0.05, rel=0.15)
    assert found.within == pytest.approx(0.02 / math.sqrt(2), rel=0.15)  # the mean of two levels


def test_more_repeats_lower_the_floor_only_to_what_separates_whole_runs():
    dice = random.Random(2)
    floor = noise([_run(dice, between=0.03, within=0.05) for _ in range(30)]).floors[0]

    assert smallest(floor, 1) > smallest(floor, 10) > math.sqrt(2) * floor.between


def test_runs_that_differ_as_wholes_fool_their_repeats_but_not_the_floor():
    dice, without, with_floor = random.Random(3), 0, 0
    known = noise([_run(dice, between=0.05, within=0.01) for _ in range(12)])
    for _ in range(100):
        pair = [_run(dice, between=0.05, within=0.01) for _ in range(2)]
        without += compare(*pair).judgement in CALLED
        with_floor += compare(*pair, floor=floors(known, *pair)).judgement in CALLED

    assert without > 30
    assert with_floor <= 10


def test_a_difference_above_the_floor_is_called_and_the_floor_is_named():
    dice = random.Random(4)
    known = noise([_run(dice, between=0.01, within=0.01) for _ in range(8)])
    before, after = run({"c1": [100.0, 101.0, 99.0]}), run({"c1": [80.0, 81.0, 79.0]})
    said = compare(before, after, floor=floors(known, before, after))

    assert said.judgement is Judgement.WORSE
    assert any("with nothing changed" in note for note in said.notes)


def test_the_floor_of_another_model_is_not_used():
    known = noise([_run(random.Random(5), between=0.01, within=0.01) for _ in range(3)])
    other = msgspec.structs.replace(known, model="another")
    one = run({"c1": [100.0]})

    assert floors(other, one, one) == {}


def test_two_runs_are_too_few():
    with pytest.raises(MeasureFailed):
        noise([_run(random.Random(6), between=0.01, within=0.01) for _ in range(2)])


def test_the_verb_measures_and_keeps_the_floor(tmp_path):
    from uncork.cli.bench import app

    with reference_server(ttft_us=2_000, itl_us=500) as server:
        done = CliRunner().invoke(
            app,
            ["--endpoint", server.url, "--noise", "3", "--concurrency", "1", "--requests", "3", "--repeats", "2",
             "--input-len", "16", "--output-len", "8", "--out", str(tmp_path), "--json"],
        )  # fmt: skip

    if done.exit_code:  # every level void: the machine was too busy for the client to keep up
        assert isinstance(done.exception, MeasureFailed), done.output
        return
    assert json.loads((tmp_path / "noise.json").read_text(encoding="utf-8")) == json.loads(done.stdout)
    known = msgspec.json.decode((tmp_path / "noise.json").read_bytes(), type=Noise)
    assert (known.runs, known.repeats) == (3, 2)
