"""uncork verify."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def verify(
    quick: Annotated[
        bool, typer.Option("--quick", help="Five criteria, seconds: after a single change.")
    ] = False,
    soak: Annotated[bool, typer.Option("--soak", help="Many rounds under load, for rare faults.")] = False,
    fabric: Annotated[str, typer.Option("--fabric", help="auto, cuda, host or simulated.")] = "auto",
    new_baseline: Annotated[
        bool, typer.Option("--new-baseline", help="Keep this run as the baseline.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result with every sample as JSON.")
    ] = False,
) -> None:
    """Prove that the devices deliver the right data at the speed of their links. Changes nothing.

    Ends with 0 pass, 1 fail, 2 inconclusive (something could not be tested: not a pass).
    """
    from uncork.cli.show import console, print_json
    from uncork.gate import baseline as baselines
    from uncork.gate import choose_fabric
    from uncork.gate import verify as run
    from uncork.gate.show import lines
    from uncork.model.gate import Depth, Verdict
    from uncork.model.unknown import is_unknown

    depth = Depth.SOAK if soak else Depth.QUICK if quick else Depth.FULL
    with choose_fabric(fabric, depth) as devices:
        stored = baselines.load(devices.name)
        known = None if is_unknown(stored) or new_baseline else stored
        result = run(devices, depth, baseline=known)
    first = is_unknown(stored) and result.verdict is Verdict.PASS and depth is not Depth.QUICK
    saved = baselines.save(result) if first or new_baseline else None
    if as_json:
        print_json(result)
        raise typer.Exit(result.exit)
    out = console()
    for line in lines(result, width=out.width):
        out.print(line)
    if saved:
        out.print(f"Kept as the baseline of later runs in this boot: {saved}", soft_wrap=True)
    raise typer.Exit(result.exit)
