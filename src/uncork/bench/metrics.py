"""The metric definitions, version METRICS of `uncork.model.bench`; in words in docs/bench.md.

Every function takes records (or their parts) in nanoseconds and answers in the unit of its name.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import sub

from uncork.bench.records import Record
from uncork.bench.spec import Objectives
from uncork.model.bench import Distribution

# Independent requests that a one-sided 95 % upper bound of a quantile needs: log(0.05) / log(q).
SUPPORT = {0.5: 5, 0.9: 29, 0.95: 59, 0.99: 299, 0.999: 2995}


def supports(quantile: float, n: int) -> bool:
    """Whether n independent requests bound that quantile from above with 95 % confidence."""
    return n >= math.ceil(round(math.log(0.05) / math.log(quantile), 6))


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan's type 7)."""
    at = (len(ordered) - 1) * q
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def distribution(values: Iterable[float], scale: float = 1.0) -> Distribution | None:
    """The distribution of the values times `scale`; None of an empty sample."""
    ordered = sorted(values)
    if not ordered:
        return None
    n = len(ordered)
    mean = (sum(ordered) if type(ordered[0]) is int else math.fsum(ordered)) / n
    std = math.dist(ordered, [mean] * n) / math.sqrt(n - 1) if n > 1 else 0.0
    p50, p90, p95, p99, p999 = (quantile(ordered, q) * scale for q in (0.5, 0.9, 0.95, 0.99, 0.999))
    return Distribution(
        n=n,
        mean=mean * scale,
        std=std * scale,
        min=ordered[0] * scale,
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        p999=p999,
        max=ordered[-1] * scale,
    )


def ttft_ns(record: Record) -> int | None:
    """First generation event (any channel) minus the moment before the first byte was handed to the kernel."""
    return record.event_ns[0] - record.sent_ns if len(record.event_ns) else None


def first_answer_ns(record: Record) -> int | None:
    """First event that is not reasoning minus send."""
    if not len(record.event_ns):
        return None
    return int(record.event_ns[record.first_answer or 0]) - record.sent_ns


def e2e_ns(record: Record) -> int | None:
    """Last generation event minus send: a usage record that comes late does not stretch it."""
    return record.event_ns[-1] - record.sent_ns if len(record.event_ns) else None


def chunk_intervals_ns(record: Record) -> list[int]:
    """Gaps between generation events: what was measured."""
    return list(map(sub, record.event_ns[1:], record.event_ns))


def token_intervals_ns(record: Record) -> list[float]:
    """Each gap divided among the tokens of the event that ended it; empty where tokens are not attributed."""
    if not len(record.event_tokens):
        return []
    gaps = chunk_intervals_ns(record)
    if one_token_each(record):
        return list(gaps)
    found: list[float] = []
    for gap, tokens in zip(gaps, record.event_tokens[1:], strict=True):
        found += [gap] if tokens == 1 else [gap / tokens] * tokens
    return found


def one_token_each(record: Record) -> bool:
    """Whether every event of the answer is known to hold one token."""
    return record.token_source == "usage"


def tpot_ns(record: Record) -> float | None:
    """(last − first event) / (tokens − tokens of the first event); None for an answer of one event."""
    first = record.event_tokens[0] if len(record.event_tokens) else 1
    rest = (record.output_tokens or 0) - first
    if rest <= 0 or len(record.event_ns) < 2:
        return None
    return float((record.event_ns[-1] - record.event_ns[0]) / rest)


def meets(record: Record, objectives: Objectives) -> bool:
    """Whether a completed request met every objective; one token leaves the TPOT objective void."""
    limits = (
        (objectives.ttft_ms, ttft_ns(record)),
        (objectives.tpot_ms, tpot_ns(record)),
        (objectives.e2e_ms, e2e_ns(record)),
    )
    return record.outcome == "ok" and all(
        limit is None or value is None or value <= limit * 1e6 for limit, value in limits
    )


def token_source(records: Sequence[Record]) -> str:
    """How tokens were attributed over a level: one word where all agree, else the counts."""
    counts = Counter(record.token_source for record in records)
    if len(counts) <= 1:
        return next(iter(counts), "none")
    return ", ".join(f"{source} {n}" for source, n in counts.most_common())


def steady_window_ns(records: Sequence[Record], target: int) -> tuple[int, int] | None:
    """From the first to the last moment at which at least 95 % of the target was in flight."""
    steps = sorted(
        [(record.sent_ns, 1) for record in records if record.sent_ns]
        + [(record.end_ns, -1) for record in records if record.sent_ns and record.end_ns]
    )
    enough, now, first, last = max(1, math.floor(target * 0.95)), 0, None, None
    for at, step in steps:
        if now >= enough and now + step < enough:
            last = at
        now += step
        if now >= enough and first is None:
            first = at
    return (first, last) if first is not None and last is not None and last > first else None


def mean_in_flight(records: Sequence[Record], window: tuple[int, int]) -> float:
    """Requests in flight on average between two times."""
    start, end = window
    busy = sum(
        max(0, min(end, record.end_ns) - max(start, record.sent_ns))
        for record in records
        if record.sent_ns and record.end_ns
    )
    return busy / (end - start)


def tokens_between(records: Sequence[Record], start: int, end: int) -> float:
    """Output tokens of completed requests that arrived in a window, by the time of each event."""
    total = 0.0
    for record in records:
        events = record.event_ns
        first, last = bisect_left(events, start), bisect_right(events, end)
        if one_token_each(record):
            total += last - first
        elif len(record.event_tokens):
            total += sum(record.event_tokens[first:last])
        elif len(events):
            total += (record.output_tokens or 0) * (last - first) / len(events)
    return total
