"""Definitions at their edges, and the rules that void a level."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.bench import metrics
from uncork.bench.gauge import LoopFigures
from uncork.bench.records import Record
from uncork.bench.spec import Level, Objectives
from uncork.bench.summary import Setting, more_would_help, summarise

MS = 1_000_000


def record(**fields):
    fields = {
        "level": "c1",
        "repeat": 0,
        "index": 0,
        "endpoint": 0,
        "intended_ns": 0,
        "sent_ns": 1 * MS,
        "stamp": "kernel",
        "outcome": "ok",
        "event_ns": [11 * MS, 21 * MS, 41 * MS],
        "end_ns": 41 * MS,
        "output_tokens": 3,
        "event_tokens": [1, 1, 1],
        "token_source": "usage",
        **fields,
    }
    return Record(**fields)


def summary(records, *, level=None, **figures):
    loop = LoopFigures(started_ns=0, ended_ns=1000 * MS, cpu_ns=10 * MS, thread_ns=10 * MS)
    for name, value in figures.items():
        setattr(loop, name, value)
    level = level or Level(concurrency=1)
    setting = Setting(
        level=level,
        repeat=0,
        order=0,
        seed=0,
        input_len=1,
        output_len=3,
        started_unix_s=0.0,
    )
    return summarise(records, [loop], setting, Objectives())


def test_the_definitions_by_hand():
    one = record()

    assert metrics.ttft_ns(one) == 10 * MS
    assert metrics.e2e_ns(one) == 40 * MS
    assert metrics.tpot_ns(one) == 15 * MS
    assert metrics.chunk_intervals_ns(one) == [10 * MS, 20 * MS]
    assert metrics.token_intervals_ns(one) == [10 * MS, 20 * MS]


def test_an_interval_is_shared_by_the_tokens_of_its_event():
    one = record(event_tokens=[2, 1, 4], output_tokens=7, token_source="per-event")

    assert metrics.token_intervals_ns(one) == [10 * MS, *[5 * MS] * 4]
    assert metrics.tpot_ns(one) == 30 * MS / 5


def test_one_token_has_no_tpot_and_misses_no_objective_of_it():
    one = record(event_ns=[11 * MS], event_tokens=[1], output_tokens=1)

    assert metrics.tpot_ns(one) is None
    assert metrics.meets(one, Objectives(tpot_ms=0.001, ttft_ms=10.0))
    assert not metrics.meets(one, Objectives(ttft_ms=9.99))
    assert not metrics.meets(record(outcome="reset"), Objectives())


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200))
def test_a_distribution_of_integers_is_exact(values):
    found = metrics.distribution(values)

    assert (found.n, found.min, found.max) == (len(values), min(values), max(values))
    assert found.mean == pytest.approx(statistics.fmean(values))
    assert found.std == pytest.approx(
        statistics.stdev(values) if len(values) > 1 else 0.0, rel=1e-6, abs=1e-3
    )
    assert found.p50 == pytest.approx(statistics.median(values))


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=100), st.floats(1e-9, 1e3))
def test_a_distribution_scales(values, scale):
    plain, scaled = metrics.distribution(values), metrics.distribution(values, scale)

    assert scaled.p99 == pytest.approx(plain.p99 * scale)
    assert scaled.std == pytest.approx(plain.std * scale)


def test_nothing_has_no_distribution():
    assert metrics.distribution([]) is None


@pytest.mark.parametrize(("quantile", "n"), metrics.SUPPORT.items())
def test_a_quantile_needs_its_sample(quantile, n):
    assert 1 - quantile**n >= 0.95 > 1 - quantile ** (n - 1)
    assert metrics.supports(quantile, n)
    assert not metrics.supports(quantile, n - 1)


def test_tokens_of_a_window_go_by_their_own_times():
    whole = [record(), record(event_tokens=[], output_tokens=6, token_source="usage-unattributed")]

    assert metrics.tokens_between(whole[:1], 12 * MS, 41 * MS) == 2
    assert metrics.tokens_between(whole, 12 * MS, 41 * MS) == 2 + 4


def test_failed_requests_enter_no_latency_and_no_tokens():
    found = summary([record(), record(outcome="reset", event_ns=[2 * MS], output_tokens=1)])

    assert (found.completed, found.failed, found.output_tokens, found.ttft_ms.n) == (1, {"reset": 1}, 3, 1)
    assert found.invalid_reason == "1 of 2 requests failed"


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"stepped": True}, "wall clock"),
        ({"thread_ns": 990 * MS, "lags_ns": [20 * MS] * 9}, "the client was the limit: 99%"),
    ],
)
def test_a_client_that_was_the_limit_voids_the_level(figures, reason):
    found = summary([record()], **figures)

    assert not found.valid
    assert reason in found.invalid_reason


def test_tokens_merged_while_the_loop_was_blind_void_the_level():
    found = summary([record(merged=2, merged_late=2)], thread_ns=900 * MS)
    spared = summary([record(merged=2, merged_late=0)])

    assert "merged in its receive queue" in found.invalid_reason
    assert more_would_help(found)
    assert spared.valid


def test_a_late_open_loop_is_void():
    level = Level(rate_s=10.0, arrival="constant")
    found = summary([record(intended_ns=-5 * MS)], level=level)

    assert "6.00 ms late" in found.invalid_reason
    assert found.ttft_intended_ms.p50 == pytest.approx(16.0)


def test_our_own_stamps_need_short_turns():
    found = summary([record(stamp="user")], turns_ns=[3 * MS] * 4)

    assert found.invalid_reason.startswith("no kernel stamps")
    assert summary([record(stamp="user")], turns_ns=[MS // 2] * 4).valid


def test_slots_refilled_late_are_said():
    apart = [
        record(index=i, sent_ns=i * 100 * MS, end_ns=(i * 100 + 60) * MS, event_ns=[(i * 100 + 60) * MS])
        for i in range(1, 6)
    ]
    found = summary(apart)

    assert found.valid
    assert found.disturbances == ("slots were refilled late: 0.652 of 1 in flight while steady",)
    assert math.isclose(found.achieved_concurrency, 0.3)
