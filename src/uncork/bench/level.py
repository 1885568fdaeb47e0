"""One level: prepare a server for measurement, send the level's requests, sum up."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from uncork.bench import api as dialects
from uncork.bench.endpoint import Endpoint, parse_endpoints, tls_context
from uncork.bench.gauge import LoopFigures
from uncork.bench.loop import Job, Loop, LoopPlan
from uncork.bench.pool import Pool
from uncork.bench.probe import find_api, find_model
from uncork.bench.prompts import Lengths, jobs, random_prompts
from uncork.bench.records import Exchange, Reader, Record, read_exchange
from uncork.bench.spec import Level, SuiteSpec
from uncork.bench.summary import Setting, summarise
from uncork.errors import NoServer
from uncork.model.bench import LevelResult

if TYPE_CHECKING:
    from uncork.bench.suite import Watch


class Outcome(msgspec.Struct):
    """A level's result and records; `died` says why the server counts as gone."""

    result: LevelResult
    records: list[Record]
    died: str = ""


class Target:
    """A server that answers, with everything needed to ask it."""

    def __init__(
        self, spec: SuiteSpec, endpoints: tuple[Endpoint, ...], model: str, api: dialects.Api
    ) -> None:
        self.spec = spec
        self.endpoints = endpoints
        self.model = model
        self.api = api
        self.context = tls_context(spec.insecure) if any(e.tls for e in endpoints) else None
        self.lengths = Lengths()
        self.options = dialects.Options(
            model=model,
            temperature=spec.temperature,
            ignore_eos=spec.ignore_eos,
            usage_per_chunk=spec.usage_per_chunk,
            extra=spec.body,
        )

    @property
    def workload_hash(self) -> str:
        """Of everything that decides what is sent, but not to whom."""
        spec = self.spec
        decides = (
            *(spec.levels, spec.requests, spec.input_len, spec.output_len, spec.repeats, spec.seed),
            *(spec.workload, spec.ignore_eos, spec.temperature, spec.body, self.api.name),
        )
        return hashlib.sha256(msgspec.json.encode(decides, order="deterministic")).hexdigest()[:16]

    def requests(self, level: Level) -> int:
        """How many requests one repeat of a level has."""
        asked = level.requests or self.spec.requests
        if asked:
            return asked
        if level.concurrency:
            return max(16, 4 * level.concurrency)
        return max(16, round(30 * (level.rate_s or 1)))

    def warm_up(self, level: Level) -> dict[str, Any]:
        """Ask until answers are steady."""
        return {}

    def pool(self) -> Pool:
        """A new pool of connections."""
        return Pool(self.endpoints, self.api.path, self.spec.headers, self.context)


def prepare(spec: SuiteSpec) -> Target:
    """Find out what answers at the endpoint. Raises `NoServer`, `BadInput`."""
    endpoints = parse_endpoints(spec.endpoint)
    model = ""
    for endpoint in endpoints:
        model = find_model(endpoint, spec) or model
    api = find_api(endpoints[0], spec)
    return Target(spec, endpoints, model, dialects.load(api))


def run_level(
    target: Target,
    level: Level,
    repeat: int,
    order: int,
    origin_ns: int,
    show: Callable[[int, int, int], None],
    watch: "Watch | None" = None,
) -> Outcome:
    """Send one level's requests and sum up. Raises `NoServer` where no connection opens."""
    spec = target.spec
    seed = seed_of(spec.seed, level, repeat)
    input_len, output_len = level.input_len or spec.input_len, level.output_len or spec.output_len
    prompts = random_prompts(seed, input_len, output_len, target.lengths, spread=spec.workload.spread)
    work = jobs(prompts, target.requests(level), target.api, target.options)
    plan = LoopPlan(
        concurrency=level.concurrency or 1,
        limit_s=spec.level_limit_s,
        request_timeout_s=spec.request_timeout_s,
        stall_timeout_s=spec.stall_timeout_s,
    )
    reader = Reader(target.api, level.name, repeat, origin_ns, spec.save_text, spec.ignore_eos)
    started_unix_s = time.time()
    with watch(level.name, repeat) if watch else contextlib.nullcontext() as seen:
        records, figures = send(target, plan, work, reader, show)
    setting = Setting(
        level=level,
        repeat=repeat,
        order=order,
        seed=seed,
        input_len=input_len,
        output_len=output_len,
        started_unix_s=started_unix_s,
    )
    result = summarise(records, [figures], setting, spec.objectives)
    if seen is not None:
        result = msgspec.structs.replace(
            result, telemetry=seen.telemetry, disturbances=(*result.disturbances, *seen.disturbances)
        )
    return Outcome(result, records, figures.died)


def send(
    target: Target,
    plan: LoopPlan,
    work: Iterator[Job],
    reader: Reader,
    show: Callable[[int, int, int], None],
) -> tuple[list[Record], LoopFigures]:
    """Run the loop over new connections; the records in the order of their index."""
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
                f"No connection to {target.endpoints[0].url} ({error.strerror or error}); nothing was sent.",
                next="check that the server runs and that --endpoint is right",
            ) from error
        figures = Loop(plan, pool, work, keep, shape, show).run()
    finally:
        pool.close()
    return sorted(records, key=lambda record: record.index), figures


def seed_of(seed: int, level: Level, repeat: int) -> int:
    """A level's own seed: no prompt of one repeat or level stands in another."""
    text = f"uncork/{seed}/{level.name}/{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big")
