"""uncork bench."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from uncork.bench.selftest import SelfTest
    from uncork.bench.spec import Level, SuiteSpec
    from uncork.bench.suite import Progress
    from uncork.model.bench import BenchRun

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def bench(
    endpoint: Annotated[
        str, typer.Option(help="Address of the server; several, comma-separated, in turn.")
    ] = "",
    model: Annotated[str, typer.Option(help="Model to ask for; else the first of /v1/models.")] = "",
    concurrency: Annotated[str, typer.Option(help="Closed loop: requests in flight, as 1,64,1024.")] = "",
    rate: Annotated[str, typer.Option(help="Open loop: requests per second, as 0.5,8.")] = "",
    arrival: Annotated[str, typer.Option(help="Open loop: poisson, constant, gamma or trace.")] = "poisson",
    requests: Annotated[int, typer.Option(min=0, help="Per level and repeat; 0: 4 x concurrency.")] = 0,
    input_len: Annotated[str, typer.Option(help="Prompt tokens; several make a grid, as 512,8192.")] = "512",
    output_len: Annotated[int, typer.Option(min=1, help="Answer tokens.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="How often each level is run.")] = 3,
    seed: Annotated[int, typer.Option(help="Decides every prompt, arrival and order.")] = 0,
    suite: Annotated[str, typer.Option(help="quick (under 2 minutes) or full (1, 2, 4 ... 1024).")] = "",
    workload: Annotated[
        str, typer.Option(help="random, sharegpt, jsonl, trace, shared-prefix, multi-turn.")
    ] = "random",
    data: Annotated[str, typer.Option(help="File of the workload.")] = "",
    prefix_len: Annotated[int, typer.Option(min=0, help="shared-prefix: tokens in common.")] = 0,
    turns: Annotated[int, typer.Option(min=1, help="multi-turn: turns of a conversation.")] = 4,
    tokenizer: Annotated[str, typer.Option(help="tokenizer.json, if the server has no /tokenize.")] = "",
    api: Annotated[str, typer.Option(help="auto, chat, completions, sglang, tgi or ollama.")] = "auto",
    header: Annotated[list[str] | None, typer.Option(help="'Name: value', as an Authorization.")] = None,
    slo_ttft_ms: Annotated[float | None, typer.Option(help="Objective for goodput.")] = None,
    slo_tpot_ms: Annotated[float | None, typer.Option(help="Objective for goodput.")] = None,
    limit_s: Annotated[float, typer.Option(min=0.1, help="Time limit of a level.")] = 600.0,
    processes: Annotated[int, typer.Option(min=0, help="0: one, more where it was the limit.")] = 0,
    stop_early: Annotated[bool, typer.Option("--stop-early", help="Let answers end by themselves.")] = False,
    insecure: Annotated[bool, typer.Option("--insecure", help="Do not verify the certificate.")] = False,
    save_text: Annotated[bool, typer.Option("--save-text", help="Keep the answers' text.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the results; finished levels are kept.")] = None,
    noise: Annotated[
        int, typer.Option(min=0, help="Run the suite so often with nothing changed: this host's noise floor.")
    ] = 0,
    model_path: Annotated[
        str, typer.Option(help="The model's folder or file: also show the share of each bound.")
    ] = "",
    self_test: Annotated[
        bool, typer.Option("--self-test", help="How exact is the client on this machine? Needs no server.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run as JSON.")] = False,
) -> None:
    """Measure a server: latency and throughput, with the error of the client itself."""
    if self_test:
        _self_test(concurrency, as_json)
        return
    from uncork.bench.endpoint import parse_endpoints
    from uncork.bench.suite import run_suite
    from uncork.bench.table import rows
    from uncork.bench.telemetry import Telemetry
    from uncork.cli.show import clean, console, print_json

    levels = _levels(suite, concurrency, rate, arrival, input_len)
    objectives = {"ttft_ms": slo_ttft_ms, "tpot_ms": slo_tpot_ms}
    source = {
        "kind": workload,
        "path": data,
        "prefix_len": prefix_len,
        "turns": turns,
        "tokenizer": tokenizer,
    }
    spec = _spec(
        endpoint=endpoint,
        model=model,
        levels=levels,
        api=api,
        requests=requests,
        input_len=_lengths(input_len)[0],
        output_len=output_len,
        seed=seed,
        repeats=1 if suite == "quick" else repeats,
        workload=source,
        objectives=objectives,
        level_limit_s=min(limit_s, 25.0) if suite == "quick" else limit_s,
        processes=processes,
        headers=_headers(header or []),
        ignore_eos=not stop_early,
        save_text=save_text,
        insecure=insecure,
    )
    folder = out or _default_out()
    telemetry = Telemetry(parse_endpoints(endpoint)[0].url)
    if noise:
        from uncork.cli.noise import show_noise

        show_noise(spec, noise, folder, _progress(), telemetry.watch, as_json=as_json)
        return
    run = run_suite(
        spec,
        out=folder,
        progress=_progress(),
        watch=telemetry.watch,
        fingerprint=lambda: _fingerprint(endpoint),
    )
    _clear_progress()
    if as_json:
        print_json(run)
        return
    screen = console()
    for line in rows(run):
        screen.print(clean(line), soft_wrap=line.startswith(("void", "disturbed")))
    if model_path:
        for line in _beside(run, model_path):
            screen.print(clean(line))
    screen.print(f"kept in {clean(str(folder))}", soft_wrap=True)
    screen.print("  next: change one thing, measure again into another --out, then uncork compare")


def _fingerprint(endpoint: str) -> "dict[str, object]":
    """Of this machine, and of the server where it runs here."""
    from uncork.bench.endpoint import parse_endpoints
    from uncork.host.live import LiveHost
    from uncork.loop.fingerprint import fingerprint

    return fingerprint(LiveHost(), parse_endpoints(endpoint)[0].url)


def _beside(run: "BenchRun", model_path: str) -> "list[str]":
    """Each level against its own bound on this host: its GPUs, else its memory as measured now."""
    from uncork.bound import levels, model_bytes
    from uncork.host.live import LiveHost
    from uncork.loop.measure import host_hardware
    from uncork.model.bound import Parallel

    model = model_bytes(Path(model_path))
    hardware = host_hardware(LiveHost(), model.weight_bytes)
    rows = levels.against(model, hardware, Parallel(), levels.measured_in(run))
    return [
        "",
        f"{model.name} on {hardware.name}, {hardware.bandwidth_gb_s:.1f} GB/s",
        *levels.beside(rows),
        "",
    ]


def _levels(suite: str, concurrency: str, rate: str, arrival: str, input_len: str) -> "tuple[Level, ...]":
    import msgspec

    from uncork.bench.spec import Level, full_levels, parse_levels, quick_levels
    from uncork.errors import BadInput

    suites = {"": tuple, "quick": quick_levels, "full": full_levels}
    if suite not in suites:
        raise BadInput(f"There is no suite {suite!r}; nothing was sent.", next="uncork bench --suite quick")
    levels: tuple[Level, ...] = suites[suite]()
    if arrival == "trace":
        levels += (Level(arrival="trace", rate_s=float(rate) if rate else None),)
    else:
        levels += parse_levels(concurrency, rate, arrival=arrival)
    levels = tuple({level.name: level for level in levels or quick_levels()}.values())
    lengths = _lengths(input_len)
    if len(lengths) == 1:
        return levels
    grid = [msgspec.structs.replace(level, input_len=n) for level in levels for n in lengths]
    return tuple(dict.fromkeys(grid))


def _lengths(text: str) -> tuple[int, ...]:
    from uncork.errors import BadInput

    try:
        found = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise BadInput(
            f"--input-len {text!r} is not a list of positive numbers; nothing was sent.",
            next="uncork bench --input-len 512,8192 ...",
        )
    return found


def _spec(**fields: object) -> "SuiteSpec":
    import msgspec

    from uncork.bench.spec import SuiteSpec
    from uncork.errors import BadInput

    try:
        return msgspec.convert(fields, SuiteSpec)
    except msgspec.ValidationError as error:
        raise BadInput(f"{error}; nothing was sent.", next="uncork bench --help") from error


def _headers(lines: list[str]) -> dict[str, str]:
    from uncork.errors import BadInput

    found = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or not line.isprintable():
            raise BadInput("A header reads 'Name: value'; nothing was sent.")
        found[name.strip()] = value.strip()
    return found


def _default_out() -> Path:
    import time

    return Path(time.strftime("uncork-bench-%Y%m%d-%H%M%S"))


def _progress() -> "Callable[[Progress], None]":
    """One line on a terminal, rewritten twice a second; nothing into a pipe."""
    import time

    said_s = 0.0

    def show(state: "Progress") -> None:
        nonlocal said_s
        now_s = time.monotonic()
        if not sys.stderr.isatty() or now_s - said_s < 0.5:
            return
        said_s = now_s
        left = "" if state.left_s is None else f", about {_minutes(state.left_s)} left"
        failed = f", {state.failed} failed" if state.failed else ""
        line = (
            f"{state.level} ({state.done + 1} of {state.total}): "
            f"{state.requests_done} of {state.requests} requests{failed}{left}"
        )
        sys.stderr.write(f"\r{line[:79]:79}")
        sys.stderr.flush()

    return show


def _clear_progress() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r" + " " * 79 + "\r")


def _minutes(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02}"


def _self_test(concurrency: str, as_json: bool) -> None:
    from uncork.bench.selftest import STREAMS, self_test
    from uncork.bench.spec import parse_levels
    from uncork.cli.show import print_json

    asked = tuple(level.concurrency or 1 for level in parse_levels(concurrency))
    found = self_test(
        asked or STREAMS, show=lambda what: None if as_json else typer.echo(f"  {what}", err=True)
    )
    if as_json:
        print_json(found)
    else:
        _print_self_test(found)
    if not found.passed:
        raise typer.Exit(1)


def _print_self_test(found: "SelfTest") -> None:
    server = found.exactness[0].server if found.exactness else "none"
    typer.echo(f"\nreference server: {server}; errors are |reported - true|, ms")
    typer.echo(
        f"{'streams':>7}{'TTFT p50':>10}{'p99':>8}{'ITL p50':>9}{'p99':>8}{'us/token':>10}{'MB':>6}  certified"
    )
    for one in found.exactness:
        ttft, itl, check = one.ttft_error_ms, one.itl_error_ms, one.result.client
        if ttft and itl:
            typer.echo(
                f"{one.streams:>7}{ttft.p50:>10.3f}{ttft.p99:>8.3f}{itl.p50:>9.4f}{itl.p99:>8.4f}"
                f"{check.cpu_us_per_token or 0:>10.1f}{check.peak_memory_mb:>6.0f}"
                f"  {'yes' if one.result.valid else 'no: ' + one.result.invalid_reason}"
            )
    wrong = [fault for fault in found.faults if not fault.right]
    typer.echo(f"faults: {len(found.faults) - len(wrong)} of {len(found.faults)} told apart")
    for fault in wrong:
        typer.echo(f"  {fault.fault}: expected {fault.expected}, recorded {fault.recorded}")
    if found.passed:
        typer.echo("  next: uncork bench --endpoint http://127.0.0.1:8000 --suite quick")
    else:
        typer.echo("  next: stop what else uses this machine's processors, and test again")
