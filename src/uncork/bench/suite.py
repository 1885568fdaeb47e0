"""The suite: levels × repeats against one server, in an order that does not favour any of them."""

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from uncork import __version__
from uncork.bench.endpoint import parse_endpoints, redact_headers
from uncork.bench.fingerprints import differing
from uncork.bench.level import Target, ask_wave, lead_in, prepare, run_level
from uncork.bench.spec import Level, SuiteSpec
from uncork.bench.store import Store
from uncork.bench.warmup import LIMIT_S, warm_up
from uncork.errors import BadInput, NoServer, ServerDied
from uncork.model.bench import METRICS, SCHEMA, BenchRun, LevelResult


class Progress(msgspec.Struct, frozen=True):
    """Where a suite is: shown to a person, several times a second."""

    level: str
    repeat: int
    repeats: int
    done: int  # levels finished, of `total`
    total: int
    requests_done: int
    requests: int
    failed: int
    left_s: float | None  # None until a level has shown how long one takes


class Reading(msgspec.Struct):
    """What a watcher saw while a level ran."""

    telemetry: dict[str, Any] = {}
    disturbances: tuple[str, ...] = ()


# Called around every level (telemetry): enter before the first request, exit after the last.
Watch = Callable[[str, int], AbstractContextManager[Reading]]
Show = Callable[[Progress], None]


def run_suite(
    spec: SuiteSpec,
    *,
    out: Path,
    progress: Show = lambda state: None,
    watch: Watch | None = None,
    fingerprint: Callable[[], dict[str, Any]] = dict,
) -> BenchRun:
    """Run every level and repeat that `out` does not hold yet, and return the whole run.

    Raises `NoServer` (nothing answers), `ServerDied` (finished levels are in `out`), `BadInput` (`out` holds
    a run of another spec), `MeasureFailed`.
    """
    check(spec)
    target = prepare(spec)
    store = Store(out)
    run = begun = _begin(spec, store, target, fingerprint)
    results = store.finished()
    try:
        for run in _levels(begun, target, store, results, progress, watch):
            store.save(run)
    except NoServer as error:  # it answered when the suite began
        died = _died(error.says, results, spec, out)
        store.save(_with_levels(run, spec, results, stopped=f"ServerDied: {died.says}"[:300]))
        raise died from error
    except BaseException as error:
        store.save(_with_levels(run, spec, results, stopped=f"{type(error).__name__}: {error}"[:300]))
        raise
    run = msgspec.structs.replace(_with_levels(run, spec, results), finished=True)
    store.save(run)
    return run


def _levels(
    run: BenchRun,
    target: Target,
    store: Store,
    results: dict[tuple[str, int], LevelResult],
    progress: Show,
    watch: Watch | None,
) -> Iterator[BenchRun]:
    """Run what is missing; the run as it stands after the warm-up and after each level."""
    spec = target.spec
    plan = [(level, repeat, at) for at, (level, repeat) in enumerate(plan_order(spec))]
    todo = [item for item in plan if (item[0].name, item[1]) not in results]
    clock = _Remaining(len(plan), len(todo), spec.repeats, progress)
    if todo and spec.warmup:
        run = msgspec.structs.replace(run, warmup=_warm(target, [level for level, _, _ in todo]))
        yield run
    for level, repeat, at in todo:
        if spec.warmup:
            lead_in(target, level)
        clock.begin(level, repeat, target.requests(level))
        outcome = run_level(target, level, repeat, at, run.started_monotonic_ns, clock.show, watch)
        if outcome.died:
            raise _died(outcome.died, results, spec, store.folder)
        results[level.name, repeat] = outcome.result
        store.add(outcome.result, outcome.records)
        run = _with_levels(run, spec, results)
        yield run
        time.sleep(spec.cooldown_s)


def check(spec: SuiteSpec) -> None:
    """Raise `BadInput` where a suite has no level, or two of the same name: their results could not be told apart."""
    names = [level.name for level in spec.levels]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        raise BadInput(
            f"The suite has {'two levels named ' + ', '.join(twice) if twice else 'no level'}; nothing was sent.",
            next="name each --concurrency and --rate once",
        )


def plan_order(spec: SuiteSpec) -> list[tuple[Level, int]]:
    """Every level of every repeat, in the order in which they run.

    interleaved: each repeat holds every level once, in an order drawn for it, so that a drift of the host
    falls on all levels alike; shuffled: all drawn together; given: as listed.
    """
    repeats = [[(level, repeat) for level in spec.levels] for repeat in range(spec.repeats)]
    chance = random.Random(f"uncork-order-{spec.seed}")
    if spec.order == "interleaved":
        for one in repeats:
            chance.shuffle(one)
    plan = [item for one in repeats for item in one]
    if spec.order == "shuffled":
        chance.shuffle(plan)
    return plan


def stored_spec(spec: SuiteSpec) -> dict[str, Any]:
    """The spec as it may be written down: credentials are redacted, URLs without userinfo."""
    safe = msgspec.structs.replace(
        spec,
        headers=redact_headers(spec.headers),
        endpoint=",".join(endpoint.url for endpoint in parse_endpoints(spec.endpoint)),
    )
    stored: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(safe))
    return stored


def _warm(target: Target, levels: list[Level]) -> dict[str, Any]:
    return warm_up(
        target,
        levels[0],
        lambda small, wave, requests, output_len: ask_wave(target, small, wave, requests, output_len),
        rounds=sum(target.requests(level) / (level.concurrency or 1) for level in levels),
        limit_s=min(LIMIT_S, target.spec.level_limit_s / 2),
    )


def _begin(
    spec: SuiteSpec, store: Store, target: "Target", fingerprint: Callable[[], dict[str, Any]]
) -> BenchRun:
    before = store.load()
    stored = stored_spec(spec)
    if before is not None:
        if before.spec != stored or before.metrics != METRICS:
            changed = sorted(
                key for key in {*stored, *before.spec} if stored.get(key) != before.spec.get(key)
            )
            raise BadInput(
                f"{store.folder} holds a run with another {', '.join(changed) or 'metric version'}; "
                "nothing was sent.",
                next="choose another --out, or repeat the command that began it to finish that run",
            )
        _same_settings(before, fingerprint(), store.folder)
        # Times in requests.jsonl keep the zero of the first start as long as the machine has not rebooted.
        return before
    run = BenchRun(
        schema=SCHEMA,
        metrics=METRICS,
        version=__version__,
        run_id=os.urandom(6).hex(),
        started_unix_s=time.time(),
        started_monotonic_ns=time.monotonic_ns(),
        spec=stored,
        workload_hash=target.workload_hash,
        model=target.model,
        endpoints=tuple(endpoint.url for endpoint in target.endpoints),
        warmup={},
        levels=(),
        finished=False,
        fingerprint=fingerprint(),
    )
    store.save(run)
    return run


def _same_settings(before: BenchRun, now: dict[str, Any], folder: Path) -> None:
    """Raise `BadInput` where what is missing would be measured with other settings than what is there."""
    differs = differing(before, msgspec.structs.replace(before, fingerprint=now))
    if before.fingerprint and now and differs:
        raise BadInput(
            f"{folder} holds levels measured with other settings; nothing was sent. They differ in "
            + "; ".join(f"{one.name}: {one.was} → {one.now}" for one in differs)
            + ".",
            next="choose another --out, or put the settings back to finish that run",
        )


def _with_levels(
    run: BenchRun,
    spec: SuiteSpec,
    results: dict[tuple[str, int], LevelResult],
    *,
    stopped: str = "",
) -> BenchRun:
    order = {level.name: at for at, level in enumerate(spec.levels)}
    levels = sorted(results.values(), key=lambda result: (order.get(result.level, 0), result.repeat))
    return msgspec.structs.replace(run, levels=tuple(levels), stopped=stopped)


def _died(why: str, results: dict[tuple[str, int], LevelResult], spec: SuiteSpec, out: Path) -> ServerDied:
    total = len(spec.levels) * spec.repeats
    return ServerDied(
        f"The server went away ({why}); {len(results)} of {total} levels are kept in {out}.",
        next="start the server again and repeat the command: finished levels are not repeated",
    )


class _Remaining:
    """Progress and time left, from how long levels took for the requests they had."""

    def __init__(self, total: int, todo: int, repeats: int, show: Show) -> None:
        self.total, self.done, self.repeats, self.tell = total, total - todo - 1, repeats, show
        self.ran, self.began_s = 0, time.monotonic()
        self.level, self.repeat, self.requests = "", 0, 0

    def begin(self, level: Level, repeat: int, requests: int) -> None:
        """A level starts."""
        self.done += 1
        self.ran += 1
        self.level, self.repeat, self.requests = level.name, repeat, requests
        self.show(0, 0, 0)

    def show(self, ended: int, failed: int, in_flight: int) -> None:
        """Called by the loop."""
        spent = time.monotonic() - self.began_s
        share = self.ran - 1 + ended / max(1, self.requests)
        left = (
            spent / share * (self.total - self.done - ended / max(1, self.requests)) if share > 0.2 else None
        )
        self.tell(
            Progress(
                self.level,
                self.repeat,
                self.repeats,
                self.done,
                self.total,
                ended,
                self.requests,
                failed,
                left,
            )
        )
