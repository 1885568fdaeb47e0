"""Collectives: curves, floors, files."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.bound import fabric, hardware
from uncork.errors import BadInput

PCIE = hardware.by_name("rtx_pro_6000_ws")
NVLINK = hardware.by_name("h100_sxm")


def test_a_curve_is_log_log_between_points_flat_below_linear_above() -> None:
    curve = fabric.measured_curve([(1024, 10.0), (4096, 40.0)], 8, "here")

    assert fabric.curve_us(curve, 16) == 10.0
    assert fabric.curve_us(curve, 2048) == pytest.approx(20.0)
    assert fabric.curve_us(curve, 40960) == pytest.approx(400.0)


def test_the_published_table_is_the_faster_of_two_kinds_and_says_that_it_is_foreign() -> None:
    curve = fabric.foreign_curve(NVLINK, 8)

    assert curve is not None
    assert curve.foreign
    assert fabric.curve_us(curve, 2048) < 5  # custom kernel in a graph; NCCL takes 16 us


def test_a_missing_number_of_ranks_is_stood_in_for_by_the_next_larger() -> None:
    six, eight = fabric.foreign_curve(PCIE, 6), fabric.foreign_curve(PCIE, 8)

    assert six is not None and eight is not None
    assert six.points == eight.points


def test_one_rank_and_unknown_links_have_no_curve() -> None:
    assert fabric.foreign_curve(PCIE, 1) is None
    assert fabric.foreign_curve(hardware.by_name("mi300x"), 8) is None


def test_the_floor_is_a_flag_then_the_link() -> None:
    assert fabric.all_reduce_floor_us(PCIE, 8, 12288) == 1.07
    # 100.7 MB over PCIe 5 x16, eight ranks: 2 x 7/8 of it in each direction at 63 GB/s.
    assert fabric.all_reduce_floor_us(PCIE, 8, 100.7e6) == pytest.approx(1.75 * 100.7e6 / 63e3)
    # A switch that adds passes the message once.
    assert fabric.all_reduce_floor_us(NVLINK, 8, 100e6) == pytest.approx(100e6 / 450e3)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(
    "id", ["rtx_pro_6000_server", "h100_sxm", "h200_sxm", "b200_sxm", "a100_sxm_80gb", "l40s"]
)
def test_no_published_measurement_beats_the_floor(id: str, ranks: int) -> None:
    device = hardware.by_name(id)
    curve = fabric.foreign_curve(device, ranks)

    assert curve is not None
    assert all(us >= fabric.all_reduce_floor_us(device, ranks, size) for size, us in curve.points)


FILES = {
    "object.json": '{"2048": 25.5, "16384": 27}',
    "pairs.json": "[[2048, 25.5], [16384, 27]]",
    "nested.json": '{"allreduce_us": {"2048": 25.5, "16384": 27}}',
    "columns.txt": "# bytes us\n2048 25.5\n16384, 27\n",
    "nccl.txt": "#  size count type redop root time algbw\n 2048 1024 half sum -1 25.5 0.08 0.14 0\n"
    "16384 8192 half sum -1 27 0.6 1.1 0\n",
}


@pytest.mark.parametrize("name", FILES)
def test_a_curve_file_is_read_in_every_form(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")

    curve = fabric.read_curve(path, 8)

    assert curve.points == ((2048, 25.5), (16384, 27.0))
    assert not curve.foreign


@pytest.mark.parametrize("text", ["", "{", "2048\n", '{"a": 1}', "2048 nothing\n", "[[1]]", '{"2048": -1}'])
def test_a_curve_file_that_is_not_one_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "curve"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(BadInput):
        fabric.read_curve(path, 8)


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(1, 1 << 30), st.floats(0.1, 1e6), min_size=1, max_size=8), st.floats(1, 1e10)
)
def test_any_curve_answers_any_size_within_its_ends(points: dict[int, float], size: float) -> None:
    curve = fabric.measured_curve(points.items(), 2, "here")

    us = fabric.curve_us(curve, size)

    assert us > 0
    if size <= max(points):
        assert min(points.values()) * (1 - 1e-9) <= us <= max(points.values()) * (1 + 1e-9)
