"""Bytes a weight in every number format, scales included."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.bound import formats
from uncork.bound.formats import matrix_bytes
from uncork.errors import BadInput

ROWS, COLUMNS = 4096, 7168


@pytest.mark.parametrize(
    ("form", "each"),
    [
        (formats.BF16, 2.0),
        (formats.fp8_block(128, 128), 1 + 4 / 128**2),
        (formats.NVFP4, 0.5625),
        (formats.MXFP4, 0.53125),
        (formats.grouped_int(4, 128, zeros=True), 0.5 + 2.5 / 128),
        (formats.grouped_int(4, 32, zeros=True), 0.5 + 2.5 / 32),
        (formats.grouped_int(4, 32, zeros=False), 0.5625),
        (formats.grouped_int(8, 128, zeros=False), 1 + 2 / 128),
    ],
)
def test_bytes_a_weight(form: formats.Format, each: float) -> None:
    assert matrix_bytes(form, ROWS, COLUMNS) == pytest.approx(ROWS * COLUMNS * each, rel=1e-6)


def test_a_block_that_is_cut_still_has_its_scale() -> None:
    # DeepSeek's kv_a_proj has 576 rows: 4.5 blocks of 128, so 5 scales a column of blocks.
    assert matrix_bytes(formats.fp8_block(128, 128), 576, 7168) == 576 * 7168 + 5 * 56 * 4


def test_a_width_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadInput, match="bits: 5"):
        formats.grouped_int(5, 128, zeros=True)


@settings(deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000))
def test_more_bits_never_take_fewer_bytes(rows: int, columns: int) -> None:
    four = matrix_bytes(formats.grouped_int(4, 32, zeros=False), rows, columns)
    eight = matrix_bytes(formats.grouped_int(8, 32, zeros=False), rows, columns)

    assert four <= eight
    assert four >= rows * columns / 2
