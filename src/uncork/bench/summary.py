"""Records and loop figures of one level → its result, and whether it may be used."""

from __future__ import annotations

import math
import resource
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from uncork.bench import metrics
from uncork.bench.gauge import LoopFigures
from uncork.bench.records import Record
from uncork.bench.spec import Level, Objectives
from uncork.model.bench import ClientCheck, Distribution, LevelResult

SATURATED_SHARE = 0.97  # of one core, with a lag that shows it matters
SATURATED_LAG_MS = 5.0
BUSY_SHARE = 0.6
MERGED_LATE_LIMIT = 0.01
UNDERDRIVEN_SHARE = 0.98
FAILED_LIMIT = 0.01


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies one run of a level."""

    level: Level
    repeat: int
    order: int
    seed: int
    input_len: int
    output_len: int
    started_unix_s: float
    processes: int = 1


def summarise(
    records: Sequence[Record], figures: Sequence[LoopFigures], setting: Setting, objectives: Objectives
) -> LevelResult:
    """The result of one level from its records and the loops (one a process) that made them."""
    level = setting.level
    done = [record for record in records if record.outcome == "ok"]
    output = sum(record.output_tokens or 0 for record in done)
    wall_s = (max(f.ended_ns for f in figures) - min(f.started_ns for f in figures)) / 1e9
    window = metrics.steady_window_ns(records, level.concurrency) if level.concurrency else None
    opened = level.arrival != "closed"
    check = client_check(records, figures, output, setting.processes, opened)
    reason = why_invalid(records, figures, check, level)
    return LevelResult(
        **_which(setting),
        **_counts(records, done, output),
        **_rates(records, done, output, wall_s, window),
        **_goodput(records, objectives, wall_s),
        **_latencies(done, opened),
        client=check,
        valid=not reason,
        invalid_reason=reason,
        disturbances=_disturbances(records, figures, level, window),
    )


def _which(setting: Setting) -> dict[str, Any]:
    """The fields that say which level and repeat this is."""
    level = setting.level
    return {
        "level": level.name,
        "repeat": setting.repeat,
        "order": setting.order,
        "phase": level.phase,
        "arrival": level.arrival,
        "concurrency": level.concurrency,
        "rate_s": level.rate_s,
        "seed": setting.seed,
        "input_len": setting.input_len,
        "output_len": setting.output_len,
        "started_unix_s": setting.started_unix_s,
    }


def _counts(records: Sequence[Record], done: Sequence[Record], output: int) -> dict[str, Any]:
    """Requests, what became of them, and their tokens."""
    cached = [record.cached_tokens for record in done if record.cached_tokens is not None]
    events = sum(len(record.event_ns) for record in done)
    return {
        "requests": len(records),
        "completed": len(done),
        "failed": dict(Counter(record.outcome for record in records if record.outcome != "ok")),
        "flags": dict(Counter(flag for record in done for flag in record.flags)),
        "input_tokens": sum(record.input_tokens or 0 for record in done),
        "cached_tokens": sum(cached) if cached else None,
        "output_tokens": output,
        "token_source": metrics.token_source(done),
        "tokens_per_chunk": output / events if events else None,
    }


def _rates(
    records: Sequence[Record],
    done: Sequence[Record],
    output: int,
    wall_s: float,
    window: tuple[int, int] | None,
) -> dict[str, Any]:
    """What the level gave a second."""
    inputs = sum(record.input_tokens or 0 for record in done)
    return {
        "wall_s": wall_s,
        "output_tok_s": output / wall_s if wall_s > 0 else 0.0,
        "total_tok_s": (inputs + output) / wall_s if wall_s > 0 else 0.0,
        "request_s": len(done) / wall_s if wall_s > 0 else 0.0,
        "steady_output_tok_s": _steady_rate(done, window),
        "achieved_concurrency": _mean_in_flight(records, wall_s),
    }


def _goodput(records: Sequence[Record], objectives: Objectives, wall_s: float) -> dict[str, Any]:
    """Requests that met every objective; nothing where none was given."""
    if not any(limit is not None for limit in (objectives.ttft_ms, objectives.tpot_ms, objectives.e2e_ms)):
        return {"goodput_s": None, "attainment": None}
    good = sum(metrics.meets(record, objectives) for record in records)
    return {
        "goodput_s": good / wall_s if wall_s > 0 else None,
        "attainment": good / len(records) if records else None,
    }


def _latencies(done: Sequence[Record], opened: bool) -> dict[str, Any]:
    """How long a user waited. In an open loop also from the intended time: no coordinated omission."""
    chunks = metrics.distribution(chain.from_iterable(map(metrics.chunk_intervals_ns, done)), 1e-6)
    return {
        "per_user_tok_s": metrics.distribution(1e9 / t for r in done if (t := metrics.tpot_ns(r))),
        "ttft_ms": _ms(metrics.ttft_ns(r) for r in done),
        "ttft_intended_ms": _ms(_from_intended(r, metrics.ttft_ns(r)) for r in done) if opened else None,
        "first_answer_ms": _ms(metrics.first_answer_ns(r) for r in done),
        "chunk_interval_ms": chunks,
        "itl_ms": _itl(done, chunks),
        "tpot_ms": _ms(metrics.tpot_ns(r) for r in done),
        "e2e_ms": _ms(metrics.e2e_ns(r) for r in done),
        "e2e_intended_ms": _ms(_from_intended(r, metrics.e2e_ns(r)) for r in done) if opened else None,
        "normalised_ms": _ms(
            e2e / r.output_tokens for r in done if (e2e := metrics.e2e_ns(r)) and r.output_tokens
        ),
    }


def _disturbances(
    records: Sequence[Record], figures: Sequence[LoopFigures], level: Level, window: tuple[int, int] | None
) -> tuple[str, ...]:
    """What a reader should know although the level stands."""
    said = []
    if any(f.limited for f in figures):
        cut = sum(record.outcome == "cancelled" for record in records)
        said.append(f"the time limit ended it after {len(records)} requests, {cut} of them unfinished")
    if level.concurrency and window is not None:
        mean = metrics.mean_in_flight(records, window)
        if mean < UNDERDRIVEN_SHARE * level.concurrency:
            said.append(f"slots were refilled late: {mean:.3g} of {level.concurrency} in flight while steady")
    return tuple(said)


def _ms(values: Iterable[float | None]) -> Distribution | None:
    return metrics.distribution((value for value in values if value is not None), 1e-6)


def _from_intended(record: Record, value_ns: int | None) -> int | None:
    return None if value_ns is None else value_ns + record.sent_ns - record.intended_ns


def _itl(done: Sequence[Record], chunks: Distribution | None) -> Distribution | None:
    """Per-token intervals, only where every answer's tokens could be attributed to its events."""
    if all(metrics.one_token_each(record) for record in done):
        return chunks
    if not all(len(record.event_tokens) for record in done):
        return None
    return _ms(gap for record in done for gap in metrics.token_intervals_ns(record))


def _steady_rate(done: Sequence[Record], window: tuple[int, int] | None) -> float | None:
    if window is None:
        return None
    return metrics.tokens_between(done, *window) / ((window[1] - window[0]) / 1e9)


def _mean_in_flight(records: Sequence[Record], wall_s: float) -> float:
    busy = sum(record.end_ns - record.sent_ns for record in records if record.end_ns and record.sent_ns)
    return busy / 1e9 / wall_s if wall_s > 0 else 0.0


def client_check(
    records: Sequence[Record], figures: Sequence[LoopFigures], tokens: int, processes: int, opened: bool
) -> ClientCheck:
    """What the client knows about its own share in the figures."""
    stamps = {record.stamp for record in records if len(record.event_ns)}
    lags = _sorted(f.lags_ns for f in figures)
    turns = _sorted(f.turns_ns for f in figures)
    events = max(1, sum(len(record.event_ns) for record in records))
    late = sorted(r.sent_ns - r.intended_ns for r in records if r.sent_ns) if opened else []
    cpu_s = sum(f.cpu_ns for f in figures) / 1e9
    return ClientCheck(
        stamp_source="mixed" if len(stamps) > 1 else ("user" if stamps == {"user"} else "kernel"),
        reads=" ".join(sorted({f.reads for f in figures})),
        processes=processes,
        cpu_s=cpu_s,
        cpu_us_per_token=cpu_s * 1e6 / tokens if tokens else None,
        cpu_share=max(f.thread_ns / max(1, f.ended_ns - f.started_ns) for f in figures),
        lag_p50_ms=metrics.quantile(lags, 0.5) / 1e6 if lags else None,
        lag_p99_ms=metrics.quantile(lags, 0.99) / 1e6 if lags else None,
        lag_max_ms=max(f.lag_max_ns for f in figures) / 1e6 if lags else None,
        turn_p99_ms=metrics.quantile(turns, 0.99) / 1e6 if turns else 0.0,
        turn_max_ms=max(f.turn_max_ns for f in figures) / 1e6,
        merged_share=sum(record.merged for record in records) / events,
        merged_late_share=sum(record.merged_late for record in records) / events,
        dispatch_late_p99_ms=metrics.quantile(late, 0.99) / 1e6 if late else None,
        peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _sorted(samples: Iterable[array[int]]) -> list[int]:
    return sorted(value for sample in samples for value in sample)


def more_would_help(result: LevelResult) -> bool:
    """Whether more client processes could cure a void level: its own work, not its neighbours, kept it busy."""
    return (
        result.invalid_reason.startswith("the client was the limit") and result.client.cpu_share > BUSY_SHARE
    )


def why_invalid(
    records: Sequence[Record], figures: Sequence[LoopFigures], check: ClientCheck, level: Level
) -> str:
    """Why the level's figures may not be used; empty where they may. The client's own faults come first."""
    if any(f.stepped for f in figures):
        return "the wall clock was set during the level, so kernel stamps moved"
    if check.cpu_share >= SATURATED_SHARE and (check.lag_p50_ms or 0.0) > SATURATED_LAG_MS:
        return (
            f"the client was the limit: {check.cpu_share:.0%} of a core, median lag {check.lag_p50_ms:.1f} ms"
        )
    busy = check.cpu_share > BUSY_SHARE
    who = "the client was the limit" if busy else "the client was kept from a processor by other work"
    if check.merged_late_share > MERGED_LATE_LIMIT:
        return (
            f"{who}: {check.merged_late_share:.1%} of tokens merged in its receive queue "
            f"(it could not look for up to {check.turn_max_ms:.1f} ms)"
        )
    ttft = _ms(metrics.ttft_ns(r) for r in records if r.outcome == "ok")
    if check.dispatch_late_p99_ms is not None and check.dispatch_late_p99_ms > max(
        1.0, 0.01 * (ttft.p50 if ttft else 0.0)
    ):
        return f"{who}: requests left {check.dispatch_late_p99_ms:.2f} ms late (p99)"
    if check.stamp_source != "kernel" and check.turn_p99_ms > 1.0:
        return f"no kernel stamps, and the client looked only every {check.turn_p99_ms:.1f} ms (p99)"
    failed = sum(record.outcome not in ("ok", "cancelled") for record in records)
    if failed > math.floor(FAILED_LIMIT * len(records)):
        return f"{failed} of {len(records)} requests failed"
    return ""
