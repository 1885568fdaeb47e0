"""aiperf and GenAI-Perf: an object of metrics, each with its unit and statistics (profile_export_*.json)."""

from collections.abc import Mapping
from typing import Any

from uncork.bench.importers.numbers import count, latency, number, scalars, text
from uncork.model.imported import Imported, Latency

_TO_MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}


def read(found: Mapping[str, Any]) -> tuple[Imported, ...]:
    """The level in this object, none where it is another tool's."""
    records = found.get("records") if isinstance(found.get("records"), Mapping) else found
    assert isinstance(records, Mapping)
    ttft = records.get("time_to_first_token")
    if not isinstance(ttft, Mapping) or "unit" not in ttft:
        return ()
    config = found.get("input_config")
    loadgen = config.get("loadgen", config) if isinstance(config, Mapping) else {}
    endpoint = config.get("endpoint", {}) if isinstance(config, Mapping) else {}
    requests = _average(records, "request_count")
    return (
        Imported(
            tool="aiperf or GenAI-Perf",
            model=_model(endpoint, found),
            max_concurrency=count(number(loadgen, "concurrency") if isinstance(loadgen, Mapping) else None),
            request_rate_s=number(loadgen, "request_rate") if isinstance(loadgen, Mapping) else None,
            completed=count(requests),
            duration_s=_average(records, "benchmark_duration"),
            request_s=_average(records, "request_throughput"),
            output_tok_s=_average(records, "output_token_throughput"),
            total_tok_s=_average(records, "total_token_throughput"),
            ttft=_latency(records, "time_to_first_token"),
            itl=_latency(records, "inter_token_latency"),
            e2e=_latency(records, "request_latency"),
            notes=("its inter_token_latency is a mean a request, which others call TPOT",),
            raw=scalars(found),
        ),
    )


def _latency(records: Mapping[str, Any], name: str) -> Latency:
    metric = records.get(name)
    if not isinstance(metric, Mapping):
        return Latency()
    scale = _TO_MS.get(str(metric.get("unit", "")).strip().lower())
    return latency(metric, scale) if scale else Latency()


def _average(records: Mapping[str, Any], name: str) -> float | None:
    metric = records.get(name)
    return number(metric, "avg", "mean") if isinstance(metric, Mapping) else None


def _model(endpoint: Any, found: Mapping[str, Any]) -> str | None:
    names = endpoint.get("model_names") if isinstance(endpoint, Mapping) else None
    return str(names[0]) if isinstance(names, list) and names else text(found, "model")
