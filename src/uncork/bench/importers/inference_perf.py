"""inference-perf: successes and failures of a stage, latencies in seconds (summary_lifecycle_metrics.json)."""

from collections.abc import Mapping
from typing import Any

from uncork.bench.importers.numbers import latency, number, scalars, whole
from uncork.model.imported import Imported


def read(found: Mapping[str, Any]) -> tuple[Imported, ...]:
    """The level in this object, none where it is another tool's."""
    successes = found.get("successes")
    if not isinstance(successes, Mapping) or not isinstance(successes.get("latency"), Mapping):
        return ()
    times = successes["latency"]
    rates = successes.get("throughput")
    rates = rates if isinstance(rates, Mapping) else {}
    load = found.get("load_summary")
    load = load if isinstance(load, Mapping) else {}
    return (
        Imported(
            tool="inference-perf",
            request_rate_s=number(load, "requested_rate", "achieved_rate"),
            num_prompts=whole(load, "count"),
            completed=whole(successes, "count"),
            duration_s=number(load, "send_duration"),
            request_s=number(rates, "requests_per_sec"),
            output_tok_s=number(rates, "output_tokens_per_sec"),
            total_tok_s=number(rates, "total_tokens_per_sec"),
            ttft=latency(times.get("time_to_first_token"), 1e3),
            tpot=latency(times.get("time_per_output_token"), 1e3),
            itl=latency(times.get("inter_token_latency"), 1e3),
            e2e=latency(times.get("request_latency"), 1e3),
            raw=scalars(found),
        ),
    )
