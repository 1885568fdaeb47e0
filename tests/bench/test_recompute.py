"""Our figures computed again from requests.jsonl alone, by the words of docs/bench.md and with none of our code."""

import json
import statistics

import pytest

from uncork.bench.reference_server import reference_server
from uncork.bench.spec import Level, Objectives, SuiteSpec
from uncork.bench.suite import run_suite


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    levels = (Level(concurrency=1), Level(concurrency=6), Level(rate_s=100.0, arrival="poisson"))
    with reference_server(ttft_us=4_000, itl_us=1_000, faults=("error", "short"), every=7) as server:
        spec = SuiteSpec(
            endpoint=server.url,
            levels=levels,
            requests=28,
            input_len=8,
            output_len=12,
            repeats=2,
            cooldown_s=0.0,
            warmup=False,
            processes=1,
            objectives=Objectives(ttft_ms=6.0, tpot_ms=1.5),
        )
        run_suite(spec, out=out)
    with (out / "requests.jsonl").open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    with (out / "summary.json").open(encoding="utf-8") as file:
        return json.load(file), lines


def percentile(values, q):
    ordered = sorted(values)
    at = (len(ordered) - 1) * q
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] * (1 - (at - low)) + ordered[high] * (at - low)


def agrees(stored, values_ms):
    assert stored["n"] == len(values_ms)
    assert stored["mean"] == pytest.approx(statistics.fmean(values_ms), rel=1e-9)
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
        assert stored[name] == pytest.approx(percentile(values_ms, q), rel=1e-9)
    assert stored["min"] == pytest.approx(min(values_ms), rel=1e-9)
    assert stored["max"] == pytest.approx(max(values_ms), rel=1e-9)


def test_every_metric_follows_from_the_requests(measured):
    summary, lines = measured

    assert len(summary["levels"]) == 6
    for level in summary["levels"]:
        mine = [x for x in lines if (x["level"], x["repeat"]) == (level["level"], level["repeat"])]
        done = [x for x in mine if x["outcome"] == "ok"]

        assert (level["requests"], level["completed"]) == (len(mine), len(done))
        assert level["output_tokens"] == sum(x["output_tokens"] for x in done)
        assert level["output_tok_s"] == pytest.approx(level["output_tokens"] / level["wall_s"])
        assert level["request_s"] == pytest.approx(len(done) / level["wall_s"])
        ttft = [(x["event_ns"][0] - x["sent_ns"]) / 1e6 for x in done]
        agrees(level["ttft_ms"], ttft)
        agrees(level["e2e_ms"], [(x["event_ns"][-1] - x["sent_ns"]) / 1e6 for x in done])
        gaps = [(b - a) / 1e6 for x in done for a, b in zip(x["event_ns"], x["event_ns"][1:], strict=False)]
        agrees(level["chunk_interval_ms"], gaps)
        agrees(level["itl_ms"], gaps)  # one token an event here
        tpot = [
            (x["event_ns"][-1] - x["event_ns"][0]) / 1e6 / (x["output_tokens"] - x["event_tokens"][0])
            for x in done
        ]
        agrees(level["tpot_ms"], tpot)
        agrees(level["per_user_tok_s"], [1000 / value for value in tpot if value > 0])
        agrees(
            level["normalised_ms"],
            [(x["event_ns"][-1] - x["sent_ns"]) / 1e6 / x["output_tokens"] for x in done],
        )
        good = sum(a <= 6.0 and b <= 1.5 for a, b in zip(ttft, tpot, strict=True))
        assert level["attainment"] == pytest.approx(good / len(mine))
        assert level["goodput_s"] == pytest.approx(good / level["wall_s"])
        if level["arrival"] != "closed":
            agrees(level["ttft_intended_ms"], [(x["event_ns"][0] - x["intended_ns"]) / 1e6 for x in done])
            agrees(level["e2e_intended_ms"], [(x["event_ns"][-1] - x["intended_ns"]) / 1e6 for x in done])


def test_failures_and_short_answers_are_counted_and_kept_apart(measured):
    summary, lines = measured
    failed = [x for x in lines if x["outcome"] != "ok"]

    assert {x["outcome"] for x in failed} == {"in-band-error"}
    assert sum(sum(level["failed"].values()) for level in summary["levels"]) == len(failed)
    assert sum(level["flags"].get("short", 0) for level in summary["levels"]) == sum(
        "short" in x.get("flags", []) for x in lines
    )
    assert [level["valid"] for level in summary["levels"]] == [False] * 6  # one in fourteen failed


def test_times_of_a_request_are_in_order(measured):
    _, lines = measured

    for line in lines:
        times = [
            line["intended_ns"],
            line["sent_ns"],
            line["first_byte_ns"],
            *line["event_ns"],
            line["end_ns"],
        ]
        assert times == sorted(times)
