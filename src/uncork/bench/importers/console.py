"""What vLLM's and sglang's clients print: blocks between lines of equal signs."""

import re

from uncork.bench.importers.numbers import number, whole
from uncork.model.imported import Imported, Latency

_BEGIN = re.compile(r"={3,}\s*Serving Benchmark Result\s*={3,}")
_LINE = re.compile(r"^([A-Za-z][^:\n]{0,80}):\s+(-?[\d.]+(?:e[+-]?\d+)?|inf|nan)\s*$", re.MULTILINE)
_NAMES = {
    "request_throughput": r"request throughput \(req/s\)",
    "output_throughput": r"output token throughput \(tok/s\)",
    "total_token_throughput": r"total token throughput \(tok/s\)",
    "completed": r"successful requests",
    "duration": r"benchmark duration \(s\)",
    "total_input_tokens": r"total input tokens",
    "total_output_tokens": r"total generated tokens",
    "max_concurrency": r"maximum request concurrency|max request concurrency",
    "request_rate": r"request rate configured \(rps\)|traffic request rate",
}


def read(text: str) -> tuple[Imported, ...]:
    """A level for every block."""
    blocks = _BEGIN.split(re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text))[1:]
    return tuple(found for block in blocks if (found := _block(block)) is not None)


def _block(block: str) -> Imported | None:
    lines = {name.strip().lower(): value for name, value in _LINE.findall(block[:20_000])}
    values = {key: _value(lines, pattern) for key, pattern in _NAMES.items()}
    if values["output_throughput"] is None:
        return None
    return Imported(
        tool="console of vllm or sglang",
        request_rate_s=number(values, "request_rate"),
        max_concurrency=whole(values, "max_concurrency"),
        completed=whole(values, "completed"),
        duration_s=number(values, "duration"),
        input_tokens=whole(values, "total_input_tokens"),
        output_tokens=whole(values, "total_output_tokens"),
        request_s=number(values, "request_throughput"),
        output_tok_s=number(values, "output_throughput"),
        total_tok_s=number(values, "total_token_throughput"),
        ttft=_latency(lines, "ttft"),
        tpot=_latency(lines, "tpot"),
        itl=_latency(lines, "itl"),
        e2e=_latency(lines, "e2el", "e2e latency"),
        notes=("rounded by the console",),
        raw={name: value for name, value in values.items() if value is not None},
    )


def _value(lines: dict[str, str], pattern: str) -> float | None:
    return next((float(value) for name, value in lines.items() if re.fullmatch(pattern, name)), None)


def _latency(lines: dict[str, str], *names: str) -> Latency:
    def of(statistic: str) -> float | None:
        keys = (f"{statistic} {name} (ms)" for name in names)
        return next((float(lines[key]) for key in keys if key in lines), None)

    return Latency(of("mean"), of("median"), of("p90"), of("p95"), of("p99"))
