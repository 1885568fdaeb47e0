"""uncork bench."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.bench.spec import SuiteSpec
    from uncork.model.bench import BenchRun

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def bench(
    endpoint: Annotated[
        str, typer.Option(help="Address of the server; several, comma-separated, in turn.")
    ] = "",
    model: Annotated[str, typer.Option(help="Model to ask for; the first of /v1/models if left out.")] = "",
    concurrency: Annotated[
        str, typer.Option(help="Closed loop: requests in flight, such as 1,64,1024.")
    ] = "",
    rate: Annotated[str, typer.Option(help="Open loop: requests per second, such as 0.5,8.")] = "",
    arrival: Annotated[str, typer.Option(help="Open loop: poisson, constant or gamma.")] = "poisson",
    requests: Annotated[int, typer.Option(min=0, help="Per level and repeat; 0 takes 4 x concurrency.")] = 0,
    input_len: Annotated[int, typer.Option(min=1, help="Prompt tokens.")] = 512,
    output_len: Annotated[int, typer.Option(min=1, help="Answer tokens.")] = 128,
    repeats: Annotated[int, typer.Option(min=1, help="How often each level is run.")] = 3,
    seed: Annotated[int, typer.Option(help="Decides every prompt, arrival and order.")] = 0,
    api: Annotated[str, typer.Option(help="auto, chat, completions, sglang, tgi or ollama.")] = "auto",
    header: Annotated[list[str] | None, typer.Option(help="'Name: value', such as an Authorization.")] = None,
    suite: Annotated[str, typer.Option(help="quick (under 2 minutes) or full (1, 2, 4 ... 1024).")] = "",
    out: Annotated[Path | None, typer.Option(help="Folder of the results; finished levels are kept.")] = None,
    save_text: Annotated[bool, typer.Option("--save-text", help="Keep the answers' text.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the run as JSON.")] = False,
) -> None:
    """Measure a server: latency and throughput by concurrency or rate, with the client's own error."""
    from uncork.bench.spec import Level, full_levels, parse_levels, quick_levels
    from uncork.bench.suite import run_suite
    from uncork.cli.show import print_json
    from uncork.errors import BadInput

    suites = {"": (), "quick": quick_levels(), "full": full_levels()}
    if suite not in suites:
        raise BadInput(f"There is no suite {suite!r}; nothing was sent.", next="uncork bench --suite quick")
    levels: tuple[Level, ...] = suites[suite] + parse_levels(concurrency, rate, arrival=arrival)
    spec = _spec(
        endpoint=endpoint,
        levels=levels or quick_levels(),
        model=model,
        requests=requests,
        input_len=input_len,
        output_len=output_len,
        repeats=1 if suite == "quick" else repeats,
        seed=seed,
        api=api,
        headers=_headers(header or []),
        save_text=save_text,
    )
    run = run_suite(spec, out=out or _default_out())
    if as_json:
        print_json(run)
    else:
        _print(run)


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
        if not colon or not name.strip() or "\n" in line or "\r" in line:
            raise BadInput("A header reads 'Name: value'; nothing was sent.")
        found[name.strip()] = value.strip()
    return found


def _default_out() -> Path:
    import time

    return Path(time.strftime("uncork-bench-%Y%m%d-%H%M%S"))


def _print(run: "BenchRun") -> None:
    from uncork.cli.show import console

    out = console()
    for level in run.levels:
        ttft = f"{level.ttft_ms.p50:.1f}" if level.ttft_ms else "-"
        out.print(f"{level.level:12} {level.repeat:2} {level.output_tok_s:10.1f} tok/s  TTFT {ttft} ms")
