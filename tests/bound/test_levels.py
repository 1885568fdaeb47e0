"""A run's levels beside their bounds, and what moved between two runs."""

from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest

from uncork.bound import hardware, levels, model_bytes
from uncork.bound.fabric import measured_curve
from uncork.errors import BadInput
from uncork.model.bench import BenchRun, ClientCheck, Distribution, LevelResult
from uncork.model.bound import Parallel

MODELS = Path(__file__).parent / "models"
GLM = model_bytes(MODELS / "GLM-5-NVFP4")
CARD = hardware.by_name("rtx_pro_6000_ws")


def blank(kind: Any, **given: Any) -> Any:
    """A noun with plain values for what a test does not speak about."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in given:
            values[field.name] = given[field.name]
        elif field.required:
            plain = {str: "", int: 0, float: 0.0, bool: True, dict: {}, tuple: ()}
            choices = get_args(field.type) if get_origin(field.type) is Literal else ()
            values[field.name] = (
                choices[0] if choices else plain.get(field.type, plain.get(get_origin(field.type)))
            )
    return kind(**values)


def level(users: int, mean_tpot_ms: float, **given: Any) -> LevelResult:
    times = blank(Distribution, n=10, mean=mean_tpot_ms)
    check = blank(ClientCheck)
    plain = {"level": f"c{users}", "concurrency": users, "input_len": 1024, "output_len": 1024, "valid": True}
    return blank(LevelResult, **{**plain, "tpot_ms": times, "client": check, **given})


def run_of(*found: LevelResult) -> BenchRun:
    return blank(BenchRun, levels=found, schema=1, metrics=1)


def test_levels_are_medians_of_valid_repeats() -> None:
    run = run_of(level(8, 20.0), level(8, 25.0), level(8, 40.0), level(8, 1.0, valid=False), level(1, 10.0))

    assert levels.measured_in(run) == (
        levels.Measured("c8", 8, 1536, 8 * 1e3 / 25),
        levels.Measured("c1", 1, 1536, 100.0),
    )


def test_open_loop_levels_have_no_concurrency_and_are_left_out() -> None:
    assert levels.measured_in(run_of(level(8, 20.0, concurrency=None), level(1, 10.0, tpot_ms=None))) == ()


def test_every_level_has_its_share_of_every_tier() -> None:
    rows = levels.against(
        GLM, CARD, Parallel(tp=8), levels.measured_in(run_of(level(1, 20.0), level(8, 30.0)))
    )

    assert [row.efficiency.fabric[0] for row in rows] == pytest.approx(
        [50 / 106.7, 8e3 / 30 / 678.9], rel=1e-3
    )
    lines = list(levels.beside(rows))
    assert [line.split()[:3] for line in lines[1:]] == [["c1", "1", "50.0"], ["c8", "8", "266.7"]]
    assert all(len(line) <= 80 for line in lines)


def test_a_faster_fabric_shows_as_the_bar_that_moved() -> None:
    slow, fast = (measured_curve([(2048, us), (1 << 20, us)], 8, "here") for us in (27.0, 9.0))
    gained = 156 * 18 / 1e3
    before = levels.against(GLM, CARD, Parallel(tp=8), levels.measured_in(run_of(level(1, 20.0))), curve=slow)
    after = levels.against(
        GLM, CARD, Parallel(tp=8), levels.measured_in(run_of(level(1, 20.0 - gained))), curve=fast
    )

    (shift,) = levels.shifts(before, after)

    assert shift.before_ms - shift.after_ms == pytest.approx(gained, abs=1e-5)
    assert shift.moved[0].part == "all-reduce excess"
    assert sum(moved.delta_ms for moved in shift.moved) == pytest.approx(shift.after_ms - shift.before_ms)
    text = list(levels.shift_lines([shift]))
    assert text[0] == "c1: 20.000 -> 17.192 ms a token (-2.808)"


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    run = run_of(level(1, 10.0))
    (tmp_path / "summary.json").write_bytes(msgspec.json.encode(run))

    assert levels.measured_in(levels.read_run(str(tmp_path))) == levels.measured_in(run)


@pytest.mark.parametrize("content", [None, b"{}", b"no"])
def test_what_is_no_run_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_bytes(content)

    with pytest.raises(BadInput, match=r"summary.json"):
        levels.read_run(str(tmp_path))
