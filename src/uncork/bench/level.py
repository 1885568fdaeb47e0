"""One level: send its requests, sum up, and say whether the client was the limit."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from uncork.bench.arrivals import arrival_times_ns
from uncork.bench.gauge import LoopFigures
from uncork.bench.loop import Loop
from uncork.bench.prompts import jobs
from uncork.bench.records import Exchange, Reader, Record, read_exchange
from uncork.bench.sending import Job, LoopPlan
from uncork.bench.spec import Level
from uncork.bench.summary import Setting, more_would_help, summarise
from uncork.bench.target import Target, prepare
from uncork.errors import NoServer
from uncork.model.bench import LevelResult

if TYPE_CHECKING:
    from uncork.bench.suite import Watch

__all__ = ["Outcome", "Target", "prepare", "run_level"]

Show = Callable[[int, int, int], None]
RAMP_LIMIT_NS = 20_000_000_000
RAMP_FROM = 8  # slots; fewer start together


class Outcome(msgspec.Struct):
    """A level's result and records; `died` says why the server counts as gone."""

    result: LevelResult
    records: list[Record]
    died: str = ""


def run_level(
    target: Target,
    level: Level,
    repeat: int,
    order: int,
    origin_ns: int,
    show: Show,
    watch: "Watch | None" = None,
) -> Outcome:
    """Send one level's requests and sum up; with more processes where one proved to be the limit.

    Raises `NoServer` where no connection opens.
    """
    processes = target.spec.processes or 1
    outcome = _once(target, level, repeat, order, origin_ns, show, watch, processes)
    if not target.spec.processes and more_would_help(outcome.result):
        from uncork.bench.workers import more_processes

        processes = more_processes(level)
        if processes > 1:
            outcome = _once(target, level, repeat, order, origin_ns, show, watch, processes)
    return outcome


def _once(
    target: Target,
    level: Level,
    repeat: int,
    order: int,
    origin_ns: int,
    show: Show,
    watch: "Watch | None",
    processes: int,
) -> Outcome:
    seed = seed_of(target.spec.seed, level, repeat)
    input_len, output_len = target.sizes(level)
    started_unix_s = time.time()
    with watch(level.name, repeat) if watch else contextlib.nullcontext() as seen:
        if processes > 1:
            from uncork.bench.workers import send_by_processes

            records, figures = send_by_processes(target, level, repeat, seed, origin_ns, processes, show)
        else:
            one, own = send(target, level, repeat, seed, origin_ns, show)
            records, figures = one, [own]
    setting = Setting(
        level=level,
        repeat=repeat,
        order=order,
        seed=seed,
        input_len=input_len,
        output_len=output_len,
        started_unix_s=started_unix_s,
        processes=processes,
    )
    result = summarise(records, figures, setting, target.spec.objectives)
    if seen is not None:
        result = msgspec.structs.replace(
            result, telemetry=seen.telemetry, disturbances=(*result.disturbances, *seen.disturbances)
        )
    return Outcome(result, records, next((f.died for f in figures if f.died), ""))


def send(
    target: Target,
    level: Level,
    repeat: int,
    seed: int,
    origin_ns: int,
    show: Show,
    *,
    part: tuple[int, int] = (0, 1),
    start_at_ns: int = 0,
) -> tuple[list[Record], LoopFigures]:
    """Send a level (or every n-th request of it) from this process."""
    spec = target.spec
    total = target.requests(level)
    work = jobs(target.prompts(level, seed), total, target.api, target.options, part)
    arrivals = None
    if level.arrival != "closed":
        trace = target.trace_s() if level.arrival == "trace" else ()
        arrivals = arrival_times_ns(level, total, seed, trace)[part[0] :: part[1]]
    slots = level.concurrency or min(512, max(8, round(2 * (level.rate_s or 1))))
    plan = LoopPlan(
        concurrency=min(len(range(part[0], slots, part[1])) or 1, total),
        arrivals_ns=arrivals,
        ramp_ns=min(target.e2e_ns, RAMP_LIMIT_NS) if slots >= RAMP_FROM else 0,
        limit_s=spec.level_limit_s,
        request_timeout_s=spec.request_timeout_s,
        stall_timeout_s=spec.stall_timeout_s,
        start_at_ns=start_at_ns,
    )
    reader = Reader(target.api, level.name, repeat, origin_ns, spec.save_text, spec.ignore_eos)
    return send_plan(target, plan, work, reader, show)


def send_plan(
    target: Target, plan: LoopPlan, work: Iterator[Job], reader: Reader, show: Show
) -> tuple[list[Record], LoopFigures]:
    """Run the loop over new connections; the records in the order of their index. Raises `NoServer`."""
    records: list[Record] = []

    def keep(exchange: Exchange, offset_ns: int, blind: list[tuple[int, int]]) -> Record:
        record = read_exchange(exchange, reader, offset_ns, blind)
        records.append(record)
        return record

    shape = None if reader.save_text else target.api.shape
    pool = target.pool()
    try:
        try:
            pool.open(plan.concurrency, spares=plan.arrivals_ns is not None)
        except OSError as error:
            raise NoServer(
                f"No connection to {target.endpoints[0].url} ({error.strerror or error}).",
                next="check that the server runs and that --endpoint is right",
            ) from error
        figures = Loop(plan, pool, work, keep, shape, show).run()
    finally:
        pool.close()
    return sorted(records, key=lambda record: record.index), figures


def ask_wave(target: Target, level: Level, seed: int, requests: int, output_len: int) -> list[Record]:
    """A few requests outside the measurement."""
    small = msgspec.structs.replace(level, requests=requests, output_len=output_len)
    work = jobs(target.prompts(small, seed_of(seed, small, -1)), requests, target.api, target.options)
    plan = LoopPlan(concurrency=min(level.concurrency or 1, requests), limit_s=target.spec.level_limit_s)
    reader = Reader(target.api, "warm-up", 0, 0, False, False)
    return send_plan(target, plan, work, reader, lambda ended, failed, in_flight: None)[0]


def lead_in(target: Target, level: Level) -> None:
    """Before a level runs first: one short wave at its concurrency, for what a server does once per batch size."""
    if level.concurrency and level.name not in target.warm:
        short = msgspec.structs.replace(level, input_len=min(64, target.sizes(level)[0]))
        ask_wave(target, short, target.spec.seed, level.concurrency, min(8, target.sizes(level)[1]))
    target.warm.add(level.name)


def seed_of(seed: int, level: Level, repeat: int) -> int:
    """A level's own seed: no prompt of one repeat or level stands in another."""
    text = f"uncork/{seed}/{level.name}/{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
