"""guidellm: a list of benchmarks, each metric split into successful, incomplete and errored requests."""

from collections.abc import Mapping
from typing import Any

from uncork.bench.importers.numbers import count, latency, number, scalars, text
from uncork.model.imported import Imported, Latency


def read(found: Mapping[str, Any]) -> tuple[Imported, ...]:
    """A level for every benchmark in the file, none where it is another tool's."""
    benchmarks = found.get("benchmarks")
    if not isinstance(benchmarks, list):
        return ()
    return tuple(
        one for item in benchmarks if isinstance(item, Mapping) and (one := _benchmark(item)) is not None
    )


def _benchmark(item: Mapping[str, Any]) -> Imported | None:
    metrics = item.get("metrics")
    if not isinstance(metrics, Mapping) or "time_to_first_token_ms" not in metrics:
        return None
    totals = metrics.get("request_totals")
    strategy = _strategy(item)
    return Imported(
        tool="guidellm",
        model=text(item, "model"),
        request_rate_s=number(strategy, "rate"),
        max_concurrency=count(number(strategy, "streams", "max_concurrency")),
        completed=count(number(totals, "successful") if isinstance(totals, Mapping) else None),
        duration_s=number(item, "duration"),
        request_s=_mean(metrics, "requests_per_second"),
        output_tok_s=_mean(metrics, "output_tokens_per_second"),
        total_tok_s=_mean(metrics, "tokens_per_second"),
        ttft=_latency(metrics, "time_to_first_token_ms"),
        tpot=_latency(metrics, "time_per_output_token_ms"),
        itl=_latency(metrics, "inter_token_latency_ms"),
        e2e=_latency(metrics, "request_latency", 1e3),  # seconds, unlike its neighbours
        raw=scalars(item),
    )


def _strategy(item: Mapping[str, Any]) -> Mapping[str, Any]:
    for holder in (item.get("config"), item.get("args"), item.get("scheduler"), item):
        if isinstance(holder, Mapping) and isinstance(holder.get("strategy"), Mapping):
            found: Mapping[str, Any] = holder["strategy"]
            return found
    return {}


def _successful(metrics: Mapping[str, Any], name: str) -> Any:
    metric = metrics.get(name)
    return metric.get("successful", metric) if isinstance(metric, Mapping) else None


def _latency(metrics: Mapping[str, Any], name: str, scale: float = 1.0) -> Latency:
    return latency(_successful(metrics, name), scale)


def _mean(metrics: Mapping[str, Any], name: str) -> float | None:
    found = _successful(metrics, name)
    return number(found, "mean") if isinstance(found, Mapping) else None
