"""uncork run: the whole loop."""

from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.loop.run import Options, Run
    from uncork.loop.server import Server

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def run(
    endpoint: Annotated[
        str, typer.Option(help="The inference server's URL; found by itself otherwise.")
    ] = "",
    model: Annotated[str, typer.Option(help="The model's name at that server.")] = "",
    model_path: Annotated[str, typer.Option(help="The model's folder or GGUF file, for the bound.")] = "",
    demo: Annotated[
        bool, typer.Option("--demo", help="Where no server runs: start a small real one.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve the changes that are shown.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do everything but the writes.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the open plan.")] = False,
    until: Annotated[str, typer.Option(help="Stop after this step of the plan.")] = "",
    suite: Annotated[str, typer.Option(help="Benchmark: quick or full.")] = "quick",
    concurrency: Annotated[str, typer.Option(help="Benchmark levels instead of a suite: 1,8,64.")] = "",
    requests: Annotated[int, typer.Option(help="Requests a level; 0 chooses.")] = 0,
    repeats: Annotated[int, typer.Option(help="How often each level is repeated.")] = 3,
    input_len: Annotated[int, typer.Option(help="Prompt tokens.")] = 128,
    output_len: Annotated[int, typer.Option(help="Output tokens.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of prompts and order.")] = 1,
    hold_s: Annotated[float, typer.Option(help="Seconds until an unconfirmed change reverts.")] = 300.0,
    gate: Annotated[
        str, typer.Option(help="Depth of the gate: quick (five criteria), full or soak.")
    ] = "full",
    attribute: Annotated[
        bool,
        typer.Option("--attribute", help="Then put each group back and set it again: what was it worth?"),
    ] = False,
    blocks: Annotated[
        int, typer.Option(help="With --attribute: how often each group is toggled.", min=2)
    ] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Look, plan, write the record, ask once, change what can be changed now, prove it, measure it."""
    from uncork.cli.terminal import Terminal
    from uncork.errors import BadInput
    from uncork.loop.drive import begin, drive
    from uncork.loop.drive import resume as take_up
    from uncork.loop.run import Options
    from uncork.model.gate import Depth

    if suite not in ("quick", "full"):
        raise BadInput(f"--suite is quick or full, not {suite!r}; nothing was done.")
    if gate not in tuple(Depth):
        raise BadInput(f"--gate is {', '.join(Depth)}, not {gate!r}; nothing was done.")
    options = Options(
        endpoint=endpoint,
        model=model,
        model_path=model_path,
        demo=demo,
        yes=yes,
        dry_run=dry_run,
        suite=suite,
        concurrency=concurrency,
        requests=requests,
        repeats=repeats,
        input_len=input_len,
        output_len=output_len,
        seed=seed,
        hold_s=hold_s,
        gate=gate,
        attribute=blocks if attribute else 0,
    )
    with ExitStack() as stack:
        say = Terminal()

        def server_of(wanted: "Options") -> "Server | None":
            server = stack.enter_context(_server(wanted))
            say.note(_which(server))
            return server

        if resume:
            loop = take_up(say, server_of, yes=yes, endpoint=endpoint)
        else:
            from uncork.loop.drive import refuse_open
            from uncork.plan.store import Store

            refuse_open(Store())
            loop = begin(options, say, server_of(options))
        drive(loop, until=until)
        _show(loop, as_json)


def _server(options: "Options") -> "AbstractContextManager[Server | None]":
    from contextlib import nullcontext

    from uncork.host.live import LiveHost
    from uncork.loop.demo import demo_server
    from uncork.loop.server import found_server, named_server

    if options.endpoint:
        return nullcontext(named_server(options.endpoint, options.model, options.model_path))
    if options.demo_started:
        return demo_server()
    found = found_server(LiveHost(), options.model)
    return demo_server() if found is None and options.demo else nullcontext(found)


def _which(server: "Server | None") -> str:
    if server is None:
        return "No inference server runs here and none was named: nothing will be measured."
    return f"Server: {server.kind} at {server.endpoint}, {server.model} ({server.how})"


def _show(run: "Run", as_json: bool) -> None:
    from uncork.cli.bars import lines
    from uncork.cli.show import clean, console, print_json
    from uncork.loop.outcome import outcome, where_time_goes

    ended = outcome(run)
    if as_json:
        print_json(ended)
        return
    out = console()
    out.print()
    for name, text in ended.lines():
        out.print(f"{name:<12} {clean(text)}", soft_wrap=False)
    for line in lines(ended.efficiency, where_time_goes(run), out):
        out.print(line, no_wrap=True, overflow="crop")
