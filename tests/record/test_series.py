"""Points of the curves: a mean lies within its interval, and a level that does not count is not drawn."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.record import largest

from uncork.record.report import series
from uncork.record.report.story import Story

RATES = st.lists(st.floats(0.01, 1e6), min_size=1, max_size=6)


@given(RATES)
def test_a_mean_lies_within_its_interval(rates):
    levels = tuple(
        msgspec.structs.replace(level, output_tok_s=rate, concurrency=4)
        for level, rate in zip(largest.bench(1.0, "r").levels, rates, strict=False)
    )
    run = msgspec.structs.replace(largest.bench(1.0, "r"), levels=levels)

    (point,) = series.points_of(run, series.output_tok_s)

    assert point.low <= point.y <= point.high
    assert point.n == len(rates)


def test_a_level_that_does_not_count_is_not_drawn():
    run = largest.bench(1.0, "r")
    spoilt = tuple(msgspec.structs.replace(level, valid=level.concurrency != 8) for level in run.levels)

    points = series.points_of(msgspec.structs.replace(run, levels=spoilt), series.output_tok_s)

    assert [point.x for point in points] == [users for users in largest.USERS if users != 8]


def test_tiers_fall_from_silicon_to_engine():
    rows = series.against(largest.story(), largest.story().before)
    silicon, fabric, engine = series.tiers(rows)

    assert all(
        a.y >= b.y >= c.y for a, b, c in zip(silicon.points, fabric.points, engine.points, strict=True)
    )
    assert [row.measured.concurrency for row in rows] == list(largest.USERS)


@pytest.mark.parametrize("limits", [None])
def test_without_its_input_there_is_no_bound(limits):
    story = msgspec.structs.replace(largest.story(), limits=limits)

    assert series.against(story, story.before) == ()
    assert series.curves([Story(name="x")], series.ttft_p50_ms) == ()
