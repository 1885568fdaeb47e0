"""What a benchmark run measured: distributions, one result per level and repeat, the run."""

from typing import Any, Literal

import msgspec

SCHEMA = 1  # of BenchRun, summary.json and requests.jsonl
METRICS = 1  # of the metric definitions in docs/bench.md; two runs with different ones are not comparable


class Distribution(msgspec.Struct, frozen=True):
    """A sample: its size, mean, standard deviation, extremes and percentiles (linear interpolation).

    A percentile is always given; whether `n` supports it is `uncork.bench.metrics.supports(quantile, n)`.
    """

    n: int
    mean: float
    std: float
    min: float
    p50: float
    p90: float
    p95: float
    p99: float
    p999: float
    max: float


class ClientCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the client says about itself during a level: the evidence that it was not the limit.

    `lag` is user clock minus kernel receive stamp at a read; `turn` is one round of the event loop; the
    events that one read returned after a turn of t ms have a time that is wrong by at most t ms.
    """

    stamp_source: Literal["kernel", "user", "mixed"]
    reads: str = "python"  # what read the answers: c, or python as in results older than this field
    processes: int
    cpu_s: float
    cpu_us_per_token: float | None
    cpu_share: float  # of one core, the busiest process
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    turn_p99_ms: float
    turn_max_ms: float
    merged_share: float  # generation events that shared a read with an earlier one, of all
    merged_late_share: float  # of those, the ones read after a turn too long to know their own time
    dispatch_late_p99_ms: float | None  # open loop: sent after intended
    peak_memory_mb: float


class LevelResult(msgspec.Struct, frozen=True, kw_only=True):
    """One level, once: what was asked of the server, what it did, and whether the figure may be used."""

    level: str  # "c64", "r8", "c1-prefill": the same in every repeat
    repeat: int
    order: int  # position at which it ran, from 0
    phase: Literal["mixed", "prefill", "decode"]
    arrival: Literal["closed", "constant", "poisson", "gamma", "trace"]
    concurrency: int | None  # closed loop
    rate_s: float | None  # open loop: intended requests per second
    seed: int
    input_len: int
    output_len: int

    started_unix_s: float
    wall_s: float
    requests: int
    completed: int
    failed: dict[str, int]  # outcome -> requests
    flags: dict[str, int]  # on completed requests: short, length-unknown, reconnected, ...
    input_tokens: int
    cached_tokens: int | None  # of the input, as the server reports; None where it does not
    output_tokens: int
    token_source: str  # how tokens were attributed to events: docs/bench.md
    tokens_per_chunk: float | None

    output_tok_s: float
    total_tok_s: float
    request_s: float
    steady_output_tok_s: float | None  # while >= 95 % of the target was in flight
    achieved_concurrency: float
    per_user_tok_s: Distribution | None
    ttft_ms: Distribution | None
    ttft_intended_ms: Distribution | None  # open loop: from the intended send time
    first_answer_ms: Distribution | None  # first delta that is not reasoning
    chunk_interval_ms: Distribution | None
    itl_ms: Distribution | None
    tpot_ms: Distribution | None
    e2e_ms: Distribution | None
    e2e_intended_ms: Distribution | None
    normalised_ms: Distribution | None  # e2e / output tokens
    goodput_s: float | None  # requests per second that met every objective
    attainment: float | None  # of all attempted

    client: ClientCheck
    valid: bool
    invalid_reason: str = ""
    disturbances: tuple[str, ...] = ()
    telemetry: dict[str, Any] = {}


class BenchRun(msgspec.Struct, frozen=True, kw_only=True):
    """A suite against one server (or several alike), as stored in DIR/summary.json."""

    schema: int
    metrics: int
    version: str
    run_id: str
    started_unix_s: float
    started_monotonic_ns: int  # zero of every time in requests.jsonl
    spec: dict[str, Any]  # the SuiteSpec, secrets redacted
    workload_hash: str
    model: str
    endpoints: tuple[str, ...]
    warmup: dict[str, Any]
    levels: tuple[LevelResult, ...]
    finished: bool  # False: a kill, an interrupt or a dead server ended it early; `levels` are whole
    stopped: str = ""  # why, where not finished
    fingerprint: dict[str, Any] = {}
