"""One level against the reference server: what it did is what the record says, faults included."""

import shutil

import msgspec
import pytest

from uncork.bench.exactness import compare
from uncork.bench.level import prepare, run_level
from uncork.bench.reference_server import reference_server
from uncork.bench.selftest import EXPECTED
from uncork.bench.spec import Level, SuiteSpec

COMPILED = [
    pytest.param(
        True, id="c", marks=pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
    ),
    pytest.param(False, id="python"),
]
FAST = {"ttft_us": 2_000, "itl_us": 1_000, "stall_us": 50_000}


def run(server, level, **fields):
    fields = {
        "input_len": 8,
        "output_len": 16,
        "repeats": 1,
        "stall_timeout_s": 1.0,
        "processes": 1,
        **fields,
    }
    spec = SuiteSpec(endpoint=server.url, levels=(level,), **fields)
    return run_level(prepare(spec), level, 0, 0, 0, lambda ended, failed, in_flight: None)


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("api", ["chat", "completions"])
def test_every_token_is_seen_and_counted(compiled, api):
    with reference_server(compiled=compiled, **FAST) as server:
        outcome = run(server, Level(concurrency=8, requests=24), api=api)
    result = outcome.result

    assert (result.requests, result.completed, result.failed) == (24, 24, {})
    assert (result.output_tokens, result.token_source, result.flags) == (24 * 16, "usage", {})
    assert result.client.stamp_source == "kernel"
    assert {len(record.event_ns) for record in outcome.records} == {16}
    assert [len(truth.tokens) for truth in server.truth.values()].count(16) == 24
    assert all(list(record.event_ns) == sorted(record.event_ns) for record in outcome.records)


def test_nothing_arrives_before_it_was_sent():
    with reference_server(**FAST) as server:
        outcome = run(server, Level(concurrency=1, requests=4))
    for record in outcome.records:
        truth = server.truth[int(record.server_id.removeprefix("ref-"))]

        assert all(sent <= at for sent, at in zip(truth.before_ns, record.event_ns, strict=True))
        assert truth.arrival_ns - record.sent_ns >= 0


def test_every_answer_finds_what_the_server_did():
    with reference_server(**FAST) as server:
        outcome = run(server, Level(concurrency=4, requests=8))
    ttft, itl, true, _, unmatched = compare(outcome.records, server.truth)

    assert unmatched == 0
    assert len(itl) == len(true)
    assert len(ttft) <= 8


@pytest.mark.parametrize("compiled", COMPILED)
@pytest.mark.parametrize("fault", EXPECTED)
def test_each_fault_is_told_apart_and_never_averaged(fault, compiled):
    outcome_expected, flag = EXPECTED[fault]
    with reference_server(faults=(fault,), every=3, compiled=compiled, **FAST) as server:
        outcome = run(server, Level(concurrency=3, requests=9))
    server.fault_given = fault
    hit = {r.outcome for r in outcome.records if _fault(server, r) == fault}
    spared = {r.outcome for r in outcome.records if _fault(server, r) == "none"}

    assert sum(record.outcome != "ok" for record in outcome.records) == (0 if outcome_expected == "ok" else 3)
    assert (spared, hit - {outcome_expected}) == ({"ok"}, set())
    assert outcome.result.completed == (9 if outcome_expected == "ok" else 6)
    assert outcome.result.valid == (outcome_expected == "ok") or outcome.result.invalid_reason
    if outcome_expected != "ok":
        assert outcome.result.failed == {outcome_expected: 3}
        assert outcome.result.ttft_ms.n == 6
    assert outcome.result.flags == ({flag: 3} if flag else {})


def _fault(server, record):
    """What was done to a request; one that got no token names no number, so it was hit."""
    number = record.server_id.removeprefix("ref-")
    return server.truth[int(number)].fault if number else server.fault_given


def test_coalesced_tokens_are_reported_as_merged():
    with reference_server(faults=("coalesce",), every=1, **FAST) as server:
        outcome = run(server, Level(concurrency=2, requests=4))

    assert all(record.merged >= 7 for record in outcome.records)
    assert outcome.result.client.merged_share > 0.4


def test_a_stall_stands_in_the_chunk_interval():
    with reference_server(faults=("stall",), every=1, **FAST) as server:
        outcome = run(server, Level(concurrency=2, requests=4))
    for record in outcome.records:
        truth = server.truth[int(record.server_id.removeprefix("ref-"))]
        stalled_ns = truth.before_ns[8] - truth.after_ns[7]

        assert record.event_ns[8] - record.event_ns[7] >= stalled_ns or record.merged


@pytest.mark.parametrize("per_event", [False, True])
def test_several_tokens_in_an_event(per_event):
    with reference_server(per_chunk=4, **FAST) as server:
        result = run(server, Level(concurrency=2, requests=4), usage_per_chunk=per_event).result

    assert result.output_tokens == 64
    assert result.tokens_per_chunk == 4.0
    assert result.chunk_interval_ms.n == 4 * 3
    assert result.token_source == ("per-event" if per_event else "usage-unattributed")
    assert (result.itl_ms.n if result.itl_ms else None) == (4 * 12 if per_event else None)
    assert result.tpot_ms.n == 4


def test_a_role_only_chunk_is_not_a_token():
    with reference_server(role_alone=True, ttft_us=30_000, itl_us=1000) as server:
        outcome = run(server, Level(concurrency=1, requests=3))

    assert {len(record.event_ns) for record in outcome.records} == {16}
    assert outcome.result.itl_ms.n == 3 * 15


def test_a_server_that_closes_every_connection_costs_no_request():
    with reference_server(close_each=True, **FAST) as server:
        result = run(server, Level(concurrency=4, requests=20)).result

    assert (result.completed, result.failed) == (20, {})


def test_text_is_kept_only_where_asked():
    with reference_server(**FAST) as server:
        kept = run(server, Level(concurrency=1, requests=1), save_text=True).records[0]
        dropped = run(server, Level(concurrency=1, requests=1)).records[0]

    assert kept.text == "".join(f" tok{i}" for i in range(16))
    assert dropped.text is None
    assert [kept.output_tokens, list(kept.event_tokens)] == [
        dropped.output_tokens,
        list(dropped.event_tokens),
    ]


def test_two_servers_share_the_requests():
    with reference_server(**FAST) as one, reference_server(**FAST) as two:
        level = Level(concurrency=4, requests=12)
        spec = SuiteSpec(endpoint=f"{one.url},{two.url}/v1", levels=(level,), output_len=4, repeats=1)
        outcome = run_level(prepare(spec), level, 0, 0, 0, lambda *_: None)

    assert outcome.result.completed == 12
    assert {record.endpoint for record in outcome.records} == {0, 1}
    assert min(len(one.truth), len(two.truth)) >= 2


def test_a_level_ends_at_its_limit_and_says_so():
    with reference_server(ttft_us=50_000, itl_us=20_000) as server:
        outcome = run(server, Level(concurrency=2, requests=1000), level_limit_s=0.3)

    assert outcome.result.requests < 1000
    assert outcome.result.completed + sum(outcome.result.failed.values()) == outcome.result.requests
    assert outcome.result.disturbances[0].startswith("the time limit ended it after")


def test_the_record_survives_json():
    with reference_server(**FAST) as server:
        result = run(server, Level(concurrency=1, requests=1)).result

    assert msgspec.json.decode(msgspec.json.encode(result), type=type(result)) == result
