"""A result of another benchmark tool, in our units and names."""

import msgspec


class Latency(msgspec.Struct, frozen=True):
    """A latency as a tool summarised it, in ms; None where the tool does not say."""

    mean_ms: float | None = None
    median_ms: float | None = None
    p90_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """One level of another tool's result.

    `tool` is told from the shape of the file, not from what it says about itself. `computed` names figures that
    the file does not hold and that follow from others in it; `notes` say what a reader must know. `raw` keeps
    the file's own scalars under its own names.
    """

    tool: str
    backend: str | None = None
    model: str | None = None
    date: str | None = None
    request_rate_s: float | None = None  # None: not said; infinity: all at once
    max_concurrency: int | None = None
    num_prompts: int | None = None
    completed: int | None = None
    duration_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    request_s: float | None = None
    output_tok_s: float | None = None
    total_tok_s: float | None = None
    ttft: Latency = Latency()
    tpot: Latency = Latency()
    itl: Latency = Latency()
    e2e: Latency = Latency()
    computed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    raw: dict[str, str | float | int | bool | None] = {}
