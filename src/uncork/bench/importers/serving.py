"""vLLM's benchmark_serving and bench serve, sglang's bench_serving, InferenceX's derivative: one flat object.

The three share names and differ in spelling: sglang writes e2e_latency and total_throughput; InferenceX writes
seconds without a unit in the name. `backend` says which server was measured, not which tool measured it.
"""

from collections.abc import Mapping
from typing import Any

from uncork.bench.importers.numbers import number, scalars, text, whole
from uncork.model.imported import Imported, Latency


def read(found: Mapping[str, Any]) -> tuple[Imported, ...]:
    """The level in this object, none where it is another tool's."""
    seconds = "median_ttft" in found or "mean_ttft" in found
    milliseconds = any(name.endswith("_ttft_ms") for name in found)
    if not (seconds or milliseconds) or "output_throughput" not in found:
        return ()
    suffix, scale = ("", 1e3) if seconds else ("_ms", 1.0)
    sglang = "total_throughput" in found or any("e2e_latency" in name for name in found)
    tool = "InferenceX" if seconds else "sglang bench_serving" if sglang else "vllm bench serve"
    computed, total = [], number(found, "total_token_throughput", "total_throughput")
    duration = number(found, "duration")
    tokens = whole(found, "total_input_tokens"), whole(found, "total_output_tokens")
    if total is None and duration and tokens[0] is not None and tokens[1] is not None:
        total = (tokens[0] + tokens[1]) / duration
        computed.append("total_tok_s")
    latencies = {
        name: _latency(found, spellings, suffix, scale)
        for name, spellings in {
            "ttft": ("ttft",),
            "tpot": ("tpot",),
            "itl": ("itl",),
            "e2e": ("e2el", "e2e_latency"),
        }.items()
    }
    return (
        Imported(
            tool=tool,
            backend=text(found, "backend"),
            model=text(found, "model_id", "model"),
            date=text(found, "date"),
            request_rate_s=number(found, "request_rate"),
            max_concurrency=whole(found, "max_concurrency"),
            num_prompts=whole(found, "num_prompts"),
            completed=whole(found, "completed"),
            duration_s=duration,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            request_s=number(found, "request_throughput"),
            output_tok_s=number(found, "output_throughput"),
            total_tok_s=total,
            computed=tuple(computed),
            notes=tuple(_notes(found, latencies)),
            raw=scalars(found),
            **latencies,
        ),
    )


def _latency(found: Mapping[str, Any], names: tuple[str, ...], suffix: str, scale: float) -> Latency:
    def of(statistic: str) -> float | None:
        return number(found, *(f"{statistic}_{name}{suffix}" for name in names), scale=scale)

    return Latency(of("mean"), of("median"), of("p90"), of("p95"), of("p99"))


def _notes(found: Mapping[str, Any], latencies: Mapping[str, Latency]) -> list[str]:
    notes = []
    observed, asked = number(found, "concurrency"), number(found, "max_concurrency")
    if observed is not None and asked and observed < 0.5 * asked:
        notes.append(f"{observed:.1f} requests were in flight on average, not {asked:.0f}")
    itl, tpot = latencies["itl"].median_ms, latencies["tpot"].median_ms
    if itl and tpot and tpot > 2 * itl:
        notes.append(
            f"median TPOT is {tpot / itl:.1f} times the median ITL: several tokens a chunk, or prefills in between"
        )
    return notes
