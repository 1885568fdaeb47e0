"""What a suite asks: endpoint, levels, lengths, repeats, seed."""

from typing import Any, Literal, cast

import msgspec

from uncork.errors import BadInput

Arrival = Literal["closed", "constant", "poisson", "gamma", "trace"]
Phase = Literal["mixed", "prefill", "decode"]

FULL_CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
QUICK_CONCURRENCY = (1, 8, 64)


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One point: a concurrency (closed loop) or a rate in requests per second (open loop).

    Lengths and requests given here replace those of the suite. `burstiness` is the shape of gamma arrivals
    (1 is Poisson, below 1 burstier); a trace takes its times from the workload file.
    """

    concurrency: int | None = None
    rate_s: float | None = None
    arrival: Arrival = "closed"
    burstiness: float = 1.0
    phase: Phase = "mixed"
    requests: int | None = None
    input_len: int | None = None
    output_len: int | None = None

    @property
    def name(self) -> str:
        """The level's name in results: c64, r8-poisson, c1-prefill, c8-i4096-o64."""
        load = f"c{self.concurrency}" if self.concurrency else f"r{self.rate_s or 0:g}-{self.arrival}"
        if self.arrival == "trace":
            load = "trace"
        phase = "" if self.phase == "mixed" else f"-{self.phase}"
        lengths = (f"-i{self.input_len}" if self.input_len else "") + (
            f"-o{self.output_len}" if self.output_len and self.phase == "mixed" else ""
        )
        return load + phase + lengths


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Where prompts come from.

    `kind`: random (token prompts of exact length), sharegpt, jsonl, trace (`path` names the file),
    shared-prefix (`prefix_len` tokens common to `groups` groups), multi-turn (`turns` a conversation).
    """

    kind: Literal["random", "sharegpt", "jsonl", "trace", "shared-prefix", "multi-turn"] = "random"
    path: str = ""
    prefix_len: int = 0
    groups: int = 1
    turns: int = 1
    tokenizer: str = ""  # a local tokenizer.json, where the server has no /tokenize
    spread: float = 0.0  # lengths uniform within ± this share of input_len and output_len


class Objectives(msgspec.Struct, frozen=True, kw_only=True):
    """Service level objectives of goodput; None is not asked."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class SuiteSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A suite. `endpoint` may name several servers, comma-separated, used in turn.

    `requests` is per level and repeat; 0 takes max(16, 4 x concurrency), or 30 s of an open-loop rate.
    `headers` (authorisation) and API keys are stored redacted.
    """

    endpoint: str
    levels: tuple[Level, ...]
    model: str = ""  # "" takes the first of /v1/models
    api: Literal["auto", "chat", "completions", "sglang", "tgi", "ollama"] = "auto"
    requests: int = 0
    input_len: int = 512
    output_len: int = 128
    repeats: int = 3
    seed: int = 0
    workload: Workload = Workload()
    objectives: Objectives = Objectives()
    headers: dict[str, str] = {}
    body: dict[str, Any] = {}  # merged into every request
    ignore_eos: bool = True
    temperature: float = 0.0
    usage_per_chunk: bool = False  # vLLM's continuous_usage_stats
    order: Literal["interleaved", "shuffled", "given"] = "interleaved"
    warmup: bool = True
    cooldown_s: float = 0.5
    level_limit_s: float = 600.0
    request_timeout_s: float = 600.0
    stall_timeout_s: float = 120.0
    processes: int = 0  # 0: one, more only where one core saturates
    save_text: bool = False
    insecure: bool = False  # do not verify a TLS certificate


def parse_levels(concurrency: str = "", rate: str = "", *, arrival: str = "poisson") -> tuple[Level, ...]:
    """Levels from `1,64,1024` and `0.5,8`. Raises `BadInput` on what is not a positive number."""
    if arrival not in ("poisson", "constant", "gamma"):
        raise BadInput(
            f"There is no arrival {arrival!r}; nothing was sent.", next="uncork bench --arrival poisson"
        )
    kind = cast(Arrival, arrival)
    try:
        closed = tuple(Level(concurrency=int(part)) for part in concurrency.split(",") if part.strip())
        opened = tuple(Level(rate_s=float(part), arrival=kind) for part in rate.split(",") if part.strip())
    except ValueError as error:
        raise BadInput(
            f"Concurrency and rate are numbers separated by commas ({error}); nothing was sent.",
            next="uncork bench --concurrency 1,8,64 ...",
        ) from error
    if any((level.concurrency or level.rate_s or 0) <= 0 for level in closed + opened):
        raise BadInput("Concurrency and rate must be above 0; nothing was sent.")
    return closed + opened


def quick_levels() -> tuple[Level, ...]:
    """Three closed-loop levels of few requests; with a limit of 25 s each they take under two minutes."""
    return tuple(Level(concurrency=c, requests=max(4, 2 * c)) for c in QUICK_CONCURRENCY)


def full_levels() -> tuple[Level, ...]:
    """Concurrency 1, 2, 4 … 1024, then prefill alone and decode alone at 1, 8 and 64."""
    mixed = tuple(Level(concurrency=c) for c in FULL_CONCURRENCY)
    prefill = tuple(Level(concurrency=c, phase="prefill", output_len=1) for c in (1, 8, 64))
    decode = tuple(Level(concurrency=c, phase="decode", input_len=16) for c in (1, 8, 64))
    return mixed + prefill + decode
