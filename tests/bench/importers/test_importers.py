"""Other tools' result files give the values that the tools wrote, in our units, and nothing that they did not."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncork.bench.importers import parse_results, read_results
from uncork.errors import BadInput

FILES = Path(__file__).parents[3].parent / "shared" / "benchfiles"
needs_files = pytest.mark.skipif(not FILES.is_dir(), reason="the result files of other tools are not here")

NAMES = {
    "request_throughput": "request_s",
    "output_throughput": "output_tok_s",
    "total_token_throughput": "total_tok_s",
    "completed": "completed",
    "duration": "duration_s",
    "total_input_tokens": "input_tokens",
    "total_output_tokens": "output_tokens",
    "max_concurrency": "max_concurrency",
    "backend": "backend",
    "model_id": "model",
    "num_prompts": "num_prompts",
    "date": "date",
    "request_rate": "request_rate_s",
}


def value_of(found, name):
    """The figure under another tool's name: mean_ttft_ms, or median_ttft in seconds."""
    if name in NAMES:
        value = getattr(found, NAMES[name])
        return "inf" if isinstance(value, float) and math.isinf(value) else value
    statistic, _, metric = name.partition("_")
    if statistic in ("mean", "median", "p99"):
        bare = metric.removesuffix("_ms")
        value = getattr(getattr(found, {"e2el": "e2e"}.get(bare, bare)), f"{statistic}_ms")
        return value if metric.endswith("_ms") or value is None else value / 1e3
    return found.raw[name]


@needs_files
def test_every_listed_value_is_read():
    checked = 0
    for entry in json.loads((FILES / "manifest.json").read_text(encoding="utf-8")):
        levels = read_results(FILES / entry["file"])
        wanted = entry["importer_must_yield"]
        if "blocks" in wanted:
            assert len(levels) == wanted["blocks"]
            wanted = wanted["first_block"]
        for name, value in wanted.items():
            expected = pytest.approx(value, rel=1e-12) if isinstance(value, float) else value
            assert value_of(levels[0], name) == expected, (entry["file"], name)
            checked += 1

    assert checked > 90


@needs_files
def test_what_a_file_does_not_hold_is_computed_and_says_so_or_stays_absent():
    (sglang,) = read_results(FILES / "sglang-bench_serving-sharegpt.jsonl")
    (trimmed,) = read_results(FILES / "vllm-bench-serve-no-e2el.json")
    (infinite,) = read_results(FILES / "sglang-bench_serving-infinity.json")

    assert sglang.total_tok_s == pytest.approx(2434.24, abs=0.01)
    assert sglang.computed == ("total_tok_s",)
    assert any("11.8 requests" in note for note in sglang.notes)
    assert trimmed.e2e.median_ms is None
    assert any("4.8 times" in note for note in trimmed.notes)
    assert infinite.tool == "sglang bench_serving" and infinite.backend == "vllm"


def test_a_metric_with_its_unit_is_converted():
    (found,) = parse_results(
        json.dumps(
            {
                "time_to_first_token": {"unit": "s", "avg": 0.25, "p50": 0.2, "p99": 1.5},
                "output_token_throughput": {"unit": "tokens/sec", "avg": 812.5},
                "request_latency": {"unit": "ms", "avg": 900.0},
            }
        )
    )

    assert (found.ttft.mean_ms, found.ttft.p99_ms, found.e2e.mean_ms, found.output_tok_s) == (
        250,
        1500,
        900,
        812.5,
    )


def test_guidellm_keeps_successful_requests_and_turns_seconds_into_ms():
    (found,) = parse_results(
        json.dumps(
            {
                "benchmarks": [
                    {
                        "config": {"strategy": {"type_": "concurrent", "streams": 8}},
                        "metrics": {
                            "request_totals": {"successful": 40, "errored": 2},
                            "time_to_first_token_ms": {
                                "successful": {"mean": 30.0, "percentiles": {"p99": 80.0}}
                            },
                            "request_latency": {"successful": {"mean": 1.5}},
                            "output_tokens_per_second": {"successful": {"mean": 500.0}},
                        },
                    }
                ]
            }
        )
    )

    assert (found.max_concurrency, found.completed, found.ttft.p99_ms, found.e2e.mean_ms) == (
        8,
        40,
        80.0,
        1500.0,
    )


def test_inference_perf_is_read_from_seconds():
    (found,) = parse_results(
        json.dumps(
            {
                "load_summary": {"count": 100, "requested_rate": 2.0},
                "successes": {
                    "count": 99,
                    "latency": {"time_to_first_token": {"mean": 0.1, "p99": 0.4}},
                    "throughput": {"output_tokens_per_sec": 120.0},
                },
            }
        )
    )

    assert (found.completed, found.ttft.p99_ms, found.output_tok_s) == (99, 400.0, 120.0)


@given(st.text(max_size=300) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_any_text_gives_levels_or_none(text):
    assert isinstance(parse_results(text), tuple)


def test_another_file_is_a_sentence(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1}', encoding="utf-8")

    with pytest.raises(BadInput, match="is no result of"):
        read_results(tmp_path / "x.json")
