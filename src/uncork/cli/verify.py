"""uncork verify."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.model.gate import GateResult

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def verify(
    quick: Annotated[
        bool, typer.Option("--quick", help="Five criteria, seconds: after a single change.")
    ] = False,
    soak: Annotated[bool, typer.Option("--soak", help="Many rounds under load, for rare faults.")] = False,
    fabric: Annotated[str, typer.Option("--fabric", help="auto, cuda, host or simulated.")] = "auto",
    simulate: Annotated[
        str, typer.Option("--simulate", help="The simulated host: pro6000-8x, pro6000-8x-direct, h200-8x.")
    ] = "pro6000-8x",
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", help="A fault of the simulated host: slow@0-3*0.5; may be repeated."),
    ] = None,
    nccl: Annotated[
        str, typer.Option("--nccl", help="The server's libnccl.so.2 (else a running server's).")
    ] = "",
    new_baseline: Annotated[
        bool, typer.Option("--new-baseline", help="Keep this run as the baseline, whatever it says.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result with every sample as JSON.")
    ] = False,
) -> None:
    """Prove that the devices deliver the right data at the speed of their links. Changes nothing.

    Ends with 0 pass, 1 fail, 2 inconclusive (something could not be tested: not a pass).
    """
    from uncork.cli.show import print_json
    from uncork.errors import BadInput
    from uncork.gate import baseline as baselines
    from uncork.gate import choose_fabric
    from uncork.gate import verify as run
    from uncork.model.gate import Depth, Verdict
    from uncork.model.unknown import is_unknown

    if quick and soak:
        raise BadInput("--quick and --soak exclude each other; nothing was tested.", next="give one of them")
    depth = Depth.SOAK if soak else Depth.QUICK if quick else Depth.FULL
    with choose_fabric(fabric, depth, nccl=nccl, simulate=simulate, faults=fault or ()) as devices:
        stored = baselines.load(devices.name)
        known = None if is_unknown(stored) or new_baseline or devices.simulated else stored
        result = run(devices, depth, baseline=known, progress=_progress(as_json))
    stale = known is not None and bool(baselines.usable(known, result.fingerprint))
    first = (is_unknown(stored) or stale) and result.verdict is Verdict.PASS and depth is not Depth.QUICK
    saved = "" if result.simulated or not (first or new_baseline) else str(baselines.save(result))
    if as_json:
        print_json(result)
    else:
        _print(result, saved)
    raise typer.Exit(result.exit)


def _progress(quiet: bool) -> Callable[[str], None]:
    """A line on the terminal that shows which criterion runs; nothing into a pipe."""
    import sys

    if quiet or not sys.stderr.isatty():
        return lambda line: None
    return lambda line: print(
        f"\r\x1b[2K{line}" if line.endswith("…") else "\r\x1b[2K", end="", file=sys.stderr
    )


def _print(result: "GateResult", saved: str) -> None:
    from uncork.cli.show import clean, console
    from uncork.gate.show import lines
    from uncork.model.gate import Verdict

    colours = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.INCONCLUSIVE: "yellow"}
    out = console()
    for number, line in enumerate(lines(result, width=min(out.width, 100))):
        style = colours[result.verdict] if number == 0 else "red" if line.startswith("FAIL") else None
        out.print(clean(line), style=style, soft_wrap=True)
    if saved:
        out.print("This run is kept as the baseline of later ones in this boot.", soft_wrap=True)
