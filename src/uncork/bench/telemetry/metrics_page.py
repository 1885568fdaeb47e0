"""The server's own /metrics page: queue, running, KV use, preemptions, prefix-cache hits."""

import http.client
import time
import urllib.parse
from typing import Any

PERIOD_S = 1.0  # a scrape costs the server something
TIMEOUT_S = 1.0

# Our name -> how vLLM, sglang, TGI and llama.cpp call it. Gauges are averaged, counters subtracted.
GAUGES = {
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "tgi_batch_current_size",
        "llamacpp:requests_processing",
    ),
    "waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "tgi_queue_size",
        "llamacpp:requests_deferred",
    ),
    "kv_use_share": (
        "vllm:kv_cache_usage_perc",
        "vllm:gpu_cache_usage_perc",
        "sglang:token_usage",
        "llamacpp:kv_cache_usage_ratio",
    ),
}
COUNTERS = {
    "preemptions": ("vllm:num_preemptions_total", "sglang:num_retracted_reqs"),
    "prefix_queries": ("vllm:prefix_cache_queries_total",),
    "prefix_hits": ("vllm:prefix_cache_hits_total",),
    "prompt_tokens": (
        "vllm:prompt_tokens_total",
        "sglang:prompt_tokens_total",
        "llamacpp:prompt_tokens_total",
    ),
    "generation_tokens": (
        *(
            "vllm:generation_tokens_total",
            "sglang:generation_tokens_total",
            "llamacpp:tokens_predicted_total",
        ),
    ),
}


class MetricsPage:
    """Scrapes once a second at most; a server without the page has no figures."""

    def __init__(self, endpoint: str) -> None:
        parts = urllib.parse.urlsplit(endpoint.split(",")[0])
        self._host, self._port, self._tls = parts.hostname or "", parts.port, parts.scheme == "https"
        self._before: dict[str, float] = {}
        self._gauges: dict[str, list[float]] = {}
        self._last_s = 0.0
        self._there = True

    def begin(self) -> None:
        self._before = self._scrape()
        self._there = bool(self._before)

    def sample(self) -> None:
        if not self._there or time.monotonic() - self._last_s < PERIOD_S:
            return
        self._last_s = time.monotonic()
        page = self._scrape()
        for name, spellings in GAUGES.items():
            value = _first(page, spellings)
            if value is not None:
                self._gauges.setdefault(name, []).append(value)

    def end(self) -> tuple[dict[str, Any], list[str]]:
        after = self._scrape() if self._there else {}
        figures: dict[str, Any] = {}
        for name, spellings in COUNTERS.items():
            before, now = _first(self._before, spellings), _first(after, spellings)
            if before is not None and now is not None:
                figures[name] = now - before
        for name, values in self._gauges.items():
            figures |= {f"{name}_mean": sum(values) / len(values), f"{name}_max": max(values)}
        if figures.get("prefix_queries"):
            figures["prefix_hit_share"] = figures.get("prefix_hits", 0) / figures["prefix_queries"]
        said = []
        if figures.get("preemptions", 0) > 0:
            said.append(f"the server preempted {figures['preemptions']:.0f} requests: its KV cache was full")
        return figures, said

    def _scrape(self) -> dict[str, float]:
        kind = http.client.HTTPSConnection if self._tls else http.client.HTTPConnection
        try:
            connection = kind(self._host, self._port, timeout=TIMEOUT_S)
            try:
                connection.request("GET", "/metrics")
                answer = connection.getresponse()
                return (
                    parse_metrics(answer.read(4 << 20).decode("utf-8", "replace"))
                    if answer.status == 200
                    else {}
                )
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError):
            return {}


def parse_metrics(text: str) -> dict[str, float]:
    """Prometheus text: every name, summed over its labels (several engines or models on one page)."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        head, _, value = line.rpartition(" ")
        name = head.partition("{")[0].strip()
        try:
            found[name] = found.get(name, 0.0) + float(value)
        except ValueError:
            continue
    return found


def _first(page: dict[str, float], names: tuple[str, ...]) -> float | None:
    return next((page[name] for name in names if name in page), None)
