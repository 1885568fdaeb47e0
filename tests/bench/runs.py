"""Benchmark runs made of given throughputs, for tests of what is said about them."""

from uncork.model.bench import METRICS, SCHEMA, BenchRun, ClientCheck, Distribution, LevelResult


def spread(value: float) -> Distribution:
    """A distribution in which every figure is `value`."""
    return Distribution(
        n=100, mean=value, std=0, min=value, p50=value, p90=value, p95=value, p99=value, p999=value, max=value
    )


def level(name: str, repeat: int, tok_s: float, *, valid: bool = True) -> LevelResult:
    """One level at this throughput, its latencies in proportion."""
    check = ClientCheck(
        stamp_source="kernel", processes=1, cpu_s=0.1, cpu_us_per_token=9.0, cpu_share=0.1, lag_p50_ms=0.01,
        lag_p99_ms=0.02, lag_max_ms=0.05, turn_p99_ms=0.1, turn_max_ms=0.2, merged_share=0.0,
        merged_late_share=0.0, dispatch_late_p99_ms=None, peak_memory_mb=40.0,
    )  # fmt: skip
    return LevelResult(
        level=name, repeat=repeat, order=0, phase="mixed", arrival="closed", concurrency=int(name[1:]), rate_s=None,
        seed=0, input_len=64, output_len=32, started_unix_s=0.0, wall_s=1.0, requests=8, completed=8, failed={},
        flags={}, input_tokens=512, cached_tokens=None, output_tokens=256, token_source="usage",
        tokens_per_chunk=1.0, output_tok_s=tok_s, total_tok_s=3 * tok_s, request_s=tok_s / 32,
        steady_output_tok_s=None, achieved_concurrency=1.0, per_user_tok_s=None, ttft_ms=spread(1000 / tok_s),
        ttft_intended_ms=None, first_answer_ms=None, chunk_interval_ms=None, itl_ms=spread(1000 / tok_s),
        tpot_ms=spread(1000 / tok_s), e2e_ms=spread(32000 / tok_s), e2e_intended_ms=None, normalised_ms=None,
        goodput_s=None, attainment=None, client=check, valid=valid,
        invalid_reason="" if valid else "the client was the limit",
    )  # fmt: skip


def run(
    throughputs: dict[str, list[float]], *, run_id: str = "r", fingerprint: dict[str, str] | None = None
) -> BenchRun:
    """A run with these throughputs a level, one number a repeat."""
    levels = tuple(
        level(name, i, value) for name, values in throughputs.items() for i, value in enumerate(values)
    )
    return BenchRun(
        schema=SCHEMA, metrics=METRICS, version="0", run_id=run_id, started_unix_s=0.0, started_monotonic_ns=0,
        spec={}, workload_hash="w", model="m", endpoints=("http://127.0.0.1:1",), warmup={}, levels=levels,
        finished=True, fingerprint=fingerprint or {},
    )  # fmt: skip
