"""Bars in a terminal: as long as what they stand for, never wider than the terminal, ASCII where it must be."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from uncork.cli import bars
from uncork.model.bound import Bar, Waterfall

SHARES = st.floats(0, 2, allow_nan=False)


def fall(*parts_ns: int) -> Waterfall:
    made = tuple(Bar(f"part {at}", ns, ns / 1e6, (), "") for at, ns in enumerate(parts_ns))
    return Waterfall(sum(parts_ns), sum(parts_ns) / 1e6, made)


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, "····"), (0.5, "██··"), (1, "████"), (9, "████"), (-1, "····"), (0.28125, "█▏··")],
)
def test_a_bar_is_as_long_as_its_share(share, drawn):
    assert bars.bar(share, 4) == drawn


def test_a_dumb_terminal_gets_ascii():
    assert bars.bar(0.5, 4, plain=True) == "##.."
    assert "".join(bars.waterfall(fall(5, 3, -1), plain=True)).isascii()


@given(SHARES, st.integers(40, 120), st.booleans())
def test_a_line_fits(share, width, plain):
    line = f"{'of the bound':<{bars.LABEL}}" + bars.efficiency(share, width, plain=plain)

    assert len(line) <= width


@given(st.lists(st.integers(-(10**6), 10**7), min_size=1, max_size=10), st.integers(50, 120))
def test_a_waterfall_fits_and_ends_with_what_was_measured(parts, width):
    if sum(parts) <= 0:
        parts.append(1 - sum(parts))

    drawn = list(bars.waterfall(fall(*parts), width))

    assert max(map(len, drawn)) <= width
    assert drawn[-1].startswith("measured")


def test_each_bar_begins_where_the_one_above_ends():
    first, second, _ = bars.waterfall(fall(600, 400), 80)

    assert first.rstrip(" ms.0123456789").rindex("█") + 1 == second.index("█")


def test_an_encoding_without_blocks_gets_ascii():
    out = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=80)

    assert bars.plain(out)
    assert "".join(bars.lines(0.5, fall(5, 3), out)).isascii()
