"""A run in the shape of other tools' files, so that what reads those can read ours."""

import csv
import io
import json
import time
from collections.abc import Callable
from typing import Any

from uncork.model.bench import BenchRun, Distribution, LevelResult

Row = dict[str, Any]


def vllm(run: BenchRun) -> str:
    """One JSON object a line as `vllm bench serve --save-result` writes it, a line for each level and repeat."""
    return _lines(_serving(run, level, "e2el", "total_token_throughput") for level in run.levels)


def sglang(run: BenchRun) -> str:
    """One JSON object a line as sglang's bench_serving appends it."""
    return _lines(_serving(run, level, "e2e_latency", "total_throughput") for level in run.levels)


def jsonl(run: BenchRun) -> str:
    """One flat JSON object a line and level: ready for a data frame or Parquet."""
    return _lines(_flat(run, level) for level in run.levels)


def as_csv(run: BenchRun) -> str:
    """As `jsonl`, comma-separated with a head line."""
    rows = [_flat(run, level) for level in run.levels]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["level"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


FORMATS: dict[str, Callable[[BenchRun], str]] = {
    "vllm": vllm,
    "sglang": sglang,
    "jsonl": jsonl,
    "csv": as_csv,
}


def _lines(rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _serving(run: BenchRun, level: LevelResult, e2e: str, total: str) -> Row:
    row: Row = {
        "date": time.strftime("%Y%m%d-%H%M%S", time.gmtime(level.started_unix_s)),
        "backend": "openai",
        "model_id": run.model,
        "num_prompts": level.requests,
        "request_rate": level.rate_s if level.rate_s is not None else "inf",
        "max_concurrency": level.concurrency,
        "duration": level.wall_s,
        "completed": level.completed,
        "total_input_tokens": level.input_tokens,
        "total_output_tokens": level.output_tokens,
        "request_throughput": level.request_s,
        "output_throughput": level.output_tok_s,
        total: level.total_tok_s,
        "uncork_level": level.level,
        "uncork_repeat": level.repeat,
        "uncork_valid": level.valid,
    }
    for name, found in (
        ("ttft", level.ttft_ms),
        ("tpot", level.tpot_ms),
        ("itl", level.itl_ms),
        (e2e, level.e2e_ms),
    ):
        if found:
            row |= {
                f"mean_{name}_ms": found.mean,
                f"median_{name}_ms": found.p50,
                f"std_{name}_ms": found.std,
                f"p99_{name}_ms": found.p99,
            }
    return row


def _flat(run: BenchRun, level: LevelResult) -> Row:
    row: Row = {"run_id": run.run_id, "model": run.model, "metrics_version": run.metrics}
    for name in (
        *("level", "repeat", "order", "phase", "arrival", "concurrency", "rate_s", "input_len", "output_len"),
        *("wall_s", "requests", "completed", "input_tokens", "output_tokens", "output_tok_s", "total_tok_s"),
        *("request_s", "achieved_concurrency", "goodput_s", "attainment", "valid", "invalid_reason"),
    ):
        row[name] = getattr(level, name)
    row["failed"] = sum(level.failed.values())
    row["client_cpu_us_per_token"] = level.client.cpu_us_per_token
    for name in ("ttft_ms", "itl_ms", "tpot_ms", "e2e_ms", "per_user_tok_s"):
        found: Distribution | None = getattr(level, name)
        for part in ("n", "mean", "std", "p50", "p90", "p99", "max"):
            row[f"{name}_{part}"] = getattr(found, part) if found else None
    return row
