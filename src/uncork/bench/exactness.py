"""How exact the client is on this machine: what it reported against what the reference server did."""

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from uncork.bench import metrics
from uncork.bench.level import prepare, run_level
from uncork.bench.records import Record
from uncork.bench.reference_server import Truth, reference_server
from uncork.bench.spec import Level, SuiteSpec
from uncork.model.bench import Distribution, LevelResult

DISTURBED_NS = 100_000  # a send that took longer has no truth better than this: the server was interrupted


class Exactness(msgspec.Struct, frozen=True, kw_only=True):
    """The client's error at one number of streams; errors are absolute differences."""

    streams: int
    tokens: int
    itl_us: int
    server: str  # c or python
    realtime: bool
    ttft_error_ms: Distribution | None
    itl_error_ms: Distribution | None
    true_itl_ms: Distribution | None
    disturbed_sends: int  # sends of the server that were interrupted, left out of the errors
    unmatched: int  # answers without a truth, or with another number of events
    result: LevelResult


def measure_exactness(
    streams: int,
    *,
    requests: int = 0,
    tokens: int = 128,
    ttft_us: int = 50_000,
    itl_us: int = 20_000,
    compiled: bool = True,
    show: Callable[[int, int, int], None] = lambda ended, failed, in_flight: None,
) -> Exactness:
    """Run one level against the reference server. Raises `MeasureFailed` where that cannot start."""
    cpus = sorted(os.sched_getaffinity(0))
    apart = len(cpus) > 1
    before = os.sched_getaffinity(0)
    with reference_server(
        ttft_us=ttft_us, itl_us=itl_us, cpu=cpus[0] if apart else -1, realtime=apart, compiled=compiled
    ) as server:
        level = Level(concurrency=streams, requests=requests or 2 * streams)
        spec = SuiteSpec(
            endpoint=server.url, levels=(level,), input_len=16, output_len=tokens, repeats=1, seed=streams
        )
        try:
            if apart:
                os.sched_setaffinity(0, set(cpus[1:]))
            outcome = run_level(prepare(spec), level, 0, 0, 0, show)
        finally:
            os.sched_setaffinity(0, before)
    ttft, itl, true, disturbed, unmatched = compare(outcome.records, server.truth)
    return Exactness(
        streams=streams,
        tokens=tokens,
        itl_us=itl_us,
        server=server.kind,
        realtime=server.realtime,
        ttft_error_ms=metrics.distribution(ttft, 1e-6),
        itl_error_ms=metrics.distribution(itl, 1e-6),
        true_itl_ms=metrics.distribution(true, 1e-6),
        disturbed_sends=disturbed,
        unmatched=unmatched,
        result=outcome.result,
    )


def compare(
    records: Sequence[Record], truths: dict[int, Truth]
) -> tuple[list[int], list[int], list[int], int, int]:
    """TTFT errors, ITL errors and true ITLs in ns, the server's interrupted sends, unmatched answers.

    True TTFT is the first send minus the kernel's stamp of the request's arrival at the server; a true ITL is
    the difference of the clock before two sends.
    """
    ttft: list[int] = []
    itl: list[int] = []
    true: list[int] = []
    disturbed = unmatched = 0
    for record in records:
        truth = truths.get(int(record.server_id.partition("-")[2] or -1))
        if record.outcome != "ok":
            continue
        if truth is None or len(truth.before_ns) != len(record.event_ns):
            unmatched += 1
            continue
        clean = [a - b < DISTURBED_NS for b, a in zip(truth.before_ns, truth.after_ns, strict=True)]
        disturbed += len(clean) - sum(clean)
        if clean[0]:
            said = record.event_ns[0] - record.sent_ns
            ttft.append(abs(said - (truth.before_ns[0] - truth.arrival_ns)))
        for i, (reported, sent) in enumerate(
            zip(pairwise(record.event_ns), pairwise(truth.before_ns), strict=True)
        ):
            if clean[i] and clean[i + 1]:
                true.append(sent[1] - sent[0])
                itl.append(abs(reported[1] - reported[0] - true[-1]))
    return ttft, itl, true, disturbed, unmatched


def describe(found: Exactness) -> str:
    """One line for a person."""
    check = found.result.client
    ttft, itl = found.ttft_error_ms, found.itl_error_ms
    return (
        f"{found.streams:5} streams  TTFT error p50 {ttft.p50:.3f} p99 {ttft.p99:.3f} ms  "
        f"ITL error p50 {itl.p50:.4f} p99 {itl.p99:.4f} ms  "
        f"{check.cpu_us_per_token or 0:.1f} us/token  {check.peak_memory_mb:.0f} MB"
        if ttft and itl
        else f"{found.streams:5} streams  nothing measured"
    )


def save(found: Sequence[Exactness], path: Path) -> None:
    """Write the figures as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(list(found)), indent=2) + b"\n")
