"""The measuring phases: gate, benchmark and bound, before and after."""

import statistics
from pathlib import Path

import msgspec

from uncork.bench import spec as levels
from uncork.bench.suite import run_suite
from uncork.bench.telemetry import Telemetry
from uncork.bound import bound_for, model_bytes
from uncork.errors import NoServer, UncorkError
from uncork.host import Host
from uncork.host.recording import RecordingHost
from uncork.loop.fingerprint import fingerprint
from uncork.loop.run import Options, Run, load_gate, save
from uncork.loop.server import Server
from uncork.model.bench import BenchRun, LevelResult
from uncork.model.bound import Bound, Hardware, Parallel
from uncork.model.gate import GateResult
from uncork.model.unknown import is_unknown

# The second run draws other prompts of the same kind: a prefix cache must not answer for the change.
OTHER_PROMPTS = 1_000_003


def gate(run: Run, when: str) -> GateResult:
    """Run the gate and keep its result as `gate-WHEN.json`."""
    from uncork.gate import baseline, choose_fabric, verify

    former = load_gate(run.folder, "before") if when == "after" else None
    depth = run.options.gate
    with choose_fabric("auto", depth) as fabric:
        result = verify(
            fabric, depth, baseline=baseline.of(former) if former else None, progress=run.say.gate
        )
    save(run.folder, f"gate-{when}.json", result)
    return result


def bench(run: Run, when: str) -> BenchRun:
    """Run the suite, resuming what a killed run had finished on the same server.

    Raises `NoServer`, `ServerDied`, `MeasureFailed`.
    """
    if run.server is None:
        raise NoServer(
            "No inference server runs on this machine and none was named; nothing was measured.",
            next="uncork run --endpoint URL, or try it on a small real one: uncork run --demo",
        )
    plan = run.plan()
    settings = [(change.knob, change.target) for step in plan.steps for change in step.changes]
    server = run.server
    spec = suite_spec(run.options, server)
    if when == "after":
        spec = msgspec.structs.replace(spec, seed=spec.seed + OTHER_PROMPTS)
    return run_suite(
        spec,
        out=_out(run.folder, when, server),
        progress=run.say.bench,
        watch=Telemetry(server.endpoint).watch,
        fingerprint=lambda: fingerprint(run.host, server.endpoint, pid=server.pid, settings=settings),
    )


def once(run: Run, out: Path, seed: int) -> BenchRun:
    """Every level once, for a block of the attribution. Raises as `bench`."""
    if run.server is None:
        raise NoServer("There is no server; nothing was measured.", next="uncork run --endpoint URL")
    spec = msgspec.structs.replace(suite_spec(run.options, run.server), repeats=1, seed=seed)
    watch = Telemetry(run.server.endpoint).watch
    return run_suite(spec, out=out, progress=run.say.bench, watch=watch)


def suite_spec(options: Options, server: Server) -> levels.SuiteSpec:
    """The suite that these options ask for."""
    if options.concurrency:
        chosen = levels.parse_levels(options.concurrency)
    elif options.suite == "full":
        chosen = levels.full_levels()
    elif server.how == "demo":
        chosen = tuple(levels.Level(concurrency=c, requests=max(4, 2 * c)) for c in (1, 4, 8))  # its slots
    else:
        chosen = levels.quick_levels()
    return levels.SuiteSpec(
        endpoint=server.endpoint,
        levels=chosen,
        model=server.model,
        requests=options.requests,
        input_len=options.input_len,
        output_len=options.output_len,
        repeats=options.repeats,
        seed=options.seed,
    )


def _out(folder: Path, when: str, server: Server) -> Path:
    """The folder of this benchmark: a half-finished one is continued only against the same server process."""
    for count in range(1, 1000):
        out = folder / (f"bench-{when}" if count == 1 else f"bench-{when}-{count}")
        note = out / "server.json"
        if not note.exists():
            save(out, "server.json", server)
            return out
        if msgspec.json.decode(note.read_bytes(), type=Server) == server:
            return out
    raise AssertionError("a thousand benchmark folders")


def bound(run: Run) -> tuple[Bound | None, str]:
    """The bound of one stream of the served model on this host; None and why where it cannot be computed."""
    server = run.server
    if server is None or not server.model_path:
        return None, "the model's files are not known; name them: --model-path FOLDER"
    try:
        model = model_bytes(Path(server.model_path))
        hardware = host_hardware(run.host, model.weight_bytes, _gate_read_gb_s(run.folder))
        parallel = Parallel(tp=server.tensor_parallel) if hardware.kind == "gpu" else Parallel()
        # The report draws every level's tiers from the same input.
        save(run.folder, "bound.json", {"model": model, "hardware": hardware, "parallel": parallel})
        context = run.options.input_len + run.options.output_len // 2
        return bound_for(model, hardware, parallel, context_len=context, concurrency=1), ""
    except UncorkError as error:
        return None, error.says


def host_hardware(host: Host, weight_bytes: int, read_gb_s: float = 0.0) -> Hardware:
    """What decodes on this host: its GPUs as the driver tells them, else its memory as it reads weights.

    The larger of what the gate measured (`read_gb_s`) and of what is measured now over a buffer of the weights'
    size: a busy moment, or a model that fits the cache, must not lower a bound. Raises `MeasureFailed`.
    """
    from uncork.bound import hardware, memory_speed
    from uncork.explorers.driver import explore

    gpus = explore(RecordingHost(host)).gpus
    if not is_unknown(gpus) and gpus:
        return hardware.from_gpu(gpus[0])
    measured = memory_speed.read_gb_s(weight_bytes)
    source = f"measured here: all CPUs reading {weight_bytes / 1e6:.0f} MB, best pass"
    if read_gb_s > measured:
        measured, source = read_gb_s, "measured here by the gate: all CPUs reading"
    return hardware.cpu(measured, source=source)


def _gate_read_gb_s(folder: Path) -> float:
    """The most that the gate's runs read in GB/s; 0 where none measured it."""
    results = [load_gate(folder, when) for when in ("before", "after")]
    figures = [figure for result in results if result for figure in result.figures]
    return max((figure.value or 0.0 for figure in figures if figure.name == "read-bandwidth"), default=0.0)


def single_stream_tok_s(run: BenchRun | None) -> float | None:
    """Decode tokens/s of one stream: 1000 / TPOT at concurrency 1, the median repeat; None where not measured."""
    if run is None:
        return None
    ones = [one for one in run.levels if one.concurrency == 1 and one.valid and one.tpot_ms]
    return statistics.median(_decode_tok_s(one) for one in ones) if ones else None


def _decode_tok_s(level: LevelResult) -> float:
    assert level.tpot_ms
    return 1000 / level.tpot_ms.mean


def summary(run: BenchRun) -> str:
    """One line: tokens/s by level, over the repeats that count."""
    parts: dict[str, list[float]] = {}
    for level in run.levels:
        if level.valid:
            parts.setdefault(level.level, []).append(level.output_tok_s)
    shown = (f"{name} {sum(values) / len(values):.1f} tok/s" for name, values in sorted(parts.items()))
    return ", ".join(shown) or "no level could be used"


def as_lines(found: Bound | None, why: str) -> tuple[str, ...]:
    """The bound in sentences, with what it assumes."""
    if found is None:
        return (f"Bound: not known ({why}).",)
    head = f"Bound at one stream: {found.silicon.tok_s_user:.1f} tokens/s ({found.model} on {found.hardware})"
    return (head, *found.assumptions)
