"""Bars that sum to the measured value exactly, and what moved between two."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.bound import bound_for, efficiency, hardware, model_bytes, waterfall
from uncork.bound.advice import ADVICE
from uncork.bound.fabric import measured_curve
from uncork.errors import BadInput
from uncork.model.bound import Parallel, Speculation

MODELS = Path(__file__).parent / "models"
GLM = model_bytes(MODELS / "GLM-5-NVFP4")
CARD = hardware.by_name("rtx_pro_6000_ws")


def bars(fall: waterfall.Waterfall) -> dict[str, float]:
    return {bar.part: bar.ms for bar in fall.bars}


def test_the_story_of_10_36_tokens_a_second() -> None:
    bound = bound_for(GLM, CARD, Parallel(tp=8), 1536, 1)

    fall = waterfall.of(bound, 10.36)

    assert fall.measured_ms == pytest.approx(96.525, abs=0.001)
    parts = bars(fall)
    assert parts["ideal sharding"] == pytest.approx(44.06 / 8 / 1.792, abs=0.005)  # 3.07
    assert parts["replication"] == pytest.approx(4.21 * 7 / 8 / 1.792, abs=0.005)  # 2.06
    assert parts["kv cache"] == pytest.approx(0.05, abs=0.005)
    assert parts["all-reduce floor"] == pytest.approx(156 * 1.07e-3, abs=0.001)  # 0.17
    assert parts["all-reduce excess"] == pytest.approx(156 * (26.9 - 1.07) * 1e-3, abs=0.01)  # 4.03
    assert parts["kernel floor"] == pytest.approx(78 * 48e-3, abs=0.001)  # 3.74
    assert parts["unexplained"] / fall.measured_ms == pytest.approx(0.86, abs=0.01)
    shares = efficiency.of(10.36, bound)
    assert shares.silicon[0] == pytest.approx(0.053, abs=0.001)
    assert shares.fabric[0] == pytest.approx(0.097, abs=0.001)
    assert shares.beaten == ()


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(sorted(path.name for path in MODELS.iterdir())),
    st.sampled_from([1, 2, 8]),
    st.integers(1, 200),
    st.floats(0.001, 1e6),
    st.integers(0, 3),
)
def test_bars_sum_to_the_measured_value_exactly(
    name: str, tp: int, users: int, tok_s: float, draft: int
) -> None:
    spec = Speculation(draft, 1 + draft / 2) if draft else None
    bound = bound_for(
        model_bytes(MODELS / name), hardware.by_bandwidth(2000), Parallel(tp=tp), 900, users, speculation=spec
    )

    fall = waterfall.of(bound, tok_s)

    assert sum(bar.ns for bar in fall.bars) == fall.measured_ns == round(bound.batch / tok_s * 1e9)
    assert all(bar.ns >= 0 for bar in fall.bars if bar.part != "unexplained")


def test_a_faster_all_reduce_moves_its_bar_and_no_other() -> None:
    slow, fast = (measured_curve([(2048, us), (1 << 20, us)], 8, "here") for us in (27.0, 9.2))
    first = bound_for(GLM, CARD, Parallel(tp=8), 1536, 1, curve=slow)
    second = bound_for(GLM, CARD, Parallel(tp=8), 1536, 1, curve=fast)
    gained = 156 * (27.0 - 9.2) / 1e3

    changes = waterfall.moved(waterfall.of(first, 50.0), waterfall.of(second, 1e3 / (1e3 / 50 - gained)))

    assert [change.part for change in changes if abs(change.delta_ms) > 1e-5] == ["all-reduce excess"]
    assert changes[0].delta_ms == pytest.approx(-gained, abs=1e-5)


def test_what_is_not_explained_by_a_term_moves_the_unexplained_bar() -> None:
    bound = bound_for(GLM, CARD, Parallel(tp=8), 1536, 1)

    changes = waterfall.moved(waterfall.of(bound, 10.0), waterfall.of(bound, 20.0))

    assert [(change.part, round(change.delta_ms, 3)) for change in changes] == [("unexplained", -50.0)]


def test_every_part_points_at_checks_and_a_next_step() -> None:
    assert all(checks and advice for checks, advice in ADVICE.values())


def test_every_check_named_is_in_the_catalogue() -> None:
    from uncork.checks import load

    assert {check for checks, _ in ADVICE.values() for check in checks} - set(load()) == set()


def test_a_tier_that_is_beaten_is_said_to_be() -> None:
    bound = bound_for(GLM, CARD, Parallel(tp=8), 1536, 1)

    assert efficiency.of(bound.fabric.tok_s * 1.1, bound).beaten == ("fabric", "engine")
    assert efficiency.of(bound.silicon.tok_s * 1.1, bound).beaten == ("silicon", "fabric", "engine")


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan")])
def test_a_measurement_must_be_a_speed(speed: float) -> None:
    bound = bound_for(GLM, CARD, Parallel(tp=8), 1536, 1)

    with pytest.raises(BadInput):
        waterfall.of(bound, speed)
    with pytest.raises(BadInput):
        efficiency.of(speed, bound)
