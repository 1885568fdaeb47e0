"""The loop's verdict stays above what an unchanged server shows on this host, where that was learnt."""

import random
from types import SimpleNamespace

import msgspec
import pytest
from tests.bench.runs import run
from tests.bench.test_noise import _run

from uncork.bench.noise import FILE, noise
from uncork.loop.phases import compared
from uncork.loop.run import load_comparison
from uncork.model.comparison import Judgement


@pytest.fixture
def loop_run(tmp_path):
    for when, speeds in (("before", [100.0, 101.0, 99.0]), ("after", [90.0, 91.0, 89.0])):
        folder = tmp_path / f"bench-{when}"
        folder.mkdir()
        (folder / "summary.json").write_bytes(msgspec.json.encode(run({"c1": speeds})))
    store = SimpleNamespace(folder=tmp_path, start=lambda step: None, complete=lambda *a, **k: None)
    return SimpleNamespace(folder=tmp_path, store=store)


@pytest.mark.parametrize(
    ("between", "verdict"), [(None, Judgement.WORSE), (0.001, Judgement.WORSE), (0.2, Judgement.UNCLEAR)]
)
def test_the_floor_of_the_state_folder_counts(loop_run, tmp_path, between, verdict):
    if between is not None:
        dice = random.Random(1)
        known = noise([_run(dice, between=between, within=0.01) for _ in range(8)])
        (tmp_path / FILE).write_bytes(msgspec.json.encode(known))

    compared(loop_run, SimpleNamespace(steps=(), holds=()), None)

    assert load_comparison(tmp_path).judgement is verdict
