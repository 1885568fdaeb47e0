"""More than one process, where one core is not enough to look at every socket in time.

Each worker opens its own connections, takes every n-th request of the level and starts at the same moment
of CLOCK_MONOTONIC. What it needs goes in by its standard input (credentials never on a command line).
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec

from uncork.bench.gauge import LoopFigures
from uncork.bench.lengths import Lengths
from uncork.bench.records import Record, decode_array, encode_array
from uncork.bench.spec import Level, SuiteSpec
from uncork.bench.target import Target, prepare
from uncork.errors import MeasureFailed

HEAD_START_S = 1.0
MOST = 4


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told."""

    spec: SuiteSpec
    lengths: Lengths
    e2e_ns: int
    level: Level
    repeat: int
    seed: int
    origin_ns: int
    start_at_ns: int
    part: tuple[int, int]


class Report(msgspec.Struct):
    """What a worker answers."""

    records: list[Record]
    figures: LoopFigures


_ENCODER = msgspec.msgpack.Encoder(enc_hook=encode_array)
_ORDER = msgspec.msgpack.Decoder(Order)
_REPORT = msgspec.msgpack.Decoder(Report, dec_hook=decode_array)


def more_processes(level: Level) -> int:
    """How many processes to try after one was the limit: as many as cores but one, at most 4."""
    cores = len(os.sched_getaffinity(0))
    return max(1, min(MOST, cores - 1 if cores > 2 else cores, level.concurrency or MOST))


def send_by_processes(
    target: Target,
    level: Level,
    repeat: int,
    seed: int,
    origin_ns: int,
    processes: int,
    show: Callable[[int, int, int], None],
) -> tuple[list[Record], list[LoopFigures]]:
    """Send a level from several processes; records in order, and each loop's figures.

    Raises `MeasureFailed` where a worker fails.
    """
    start_at_ns = time.monotonic_ns() + round(HEAD_START_S * 1e9)
    order = Order(
        spec=msgspec.structs.replace(target.spec, model=target.model, api=target.api.name),
        lengths=target.lengths,
        e2e_ns=target.e2e_ns,
        level=level,
        repeat=repeat,
        seed=seed,
        origin_ns=origin_ns,
        start_at_ns=start_at_ns,
        part=(0, processes),
    )
    reports = _run([msgspec.structs.replace(order, part=(i, processes)) for i in range(processes)])
    records = sorted((r for report in reports for r in report.records), key=lambda record: record.index)
    show(len(records), sum(record.outcome != "ok" for record in records), 0)
    return records, [report.figures for report in reports]


def _run(orders: list[Order]) -> list[Report]:
    """One process an order; none is left behind whatever happens."""
    command = [sys.executable, "-m", "uncork.bench.workers"]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in orders
    ]
    try:
        for process, order in zip(running, orders, strict=True):
            assert process.stdin is not None
            process.stdin.write(_ENCODER.encode(order))
            process.stdin.close()
            process.stdin = None
        return [_collect(process) for process in running]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()


def _collect(process: "subprocess.Popen[bytes]") -> Report:
    out, err = process.communicate()
    if process.returncode != 0:
        said = err.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        raise MeasureFailed(f"A worker process of the load generator failed: {said[-1][:200]}")
    return _REPORT.decode(out)


def work() -> None:
    """What a worker does: read its order, send, report."""
    from uncork.bench.level import send

    order = _ORDER.decode(sys.stdin.buffer.read())
    target = prepare(order.spec, lengths=order.lengths)
    target.e2e_ns = order.e2e_ns
    records, figures = send(
        target,
        order.level,
        order.repeat,
        order.seed,
        order.origin_ns,
        lambda ended, failed, in_flight: None,
        part=order.part,
        start_at_ns=order.start_at_ns,
    )
    sys.stdout.buffer.write(_ENCODER.encode(Report(records, figures)))


if __name__ == "__main__":
    work()
