"""uncork compare."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.model.bench import BenchRun
    from uncork.model.comparison import Comparison

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def compare(
    before: Annotated[
        str, typer.Argument(help="Folder of a run of uncork bench; several, measured in turns: A1,A2,A3.")
    ],
    after: Annotated[str, typer.Argument(help="The other one, or the other ones.")],
    tested: Annotated[
        str,
        typer.Option(
            help="What was changed on purpose: fingerprint names, comma-separated; * stands for any text."
        ),
    ] = "",
    noise: Annotated[
        str, typer.Option(help="A noise.json of uncork bench --noise; found beside the runs otherwise.")
    ] = "",
    model_path: Annotated[
        str, typer.Option(help="The model's folder or file: also show which parts of a token's time moved.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what two runs support: improved, worse, equivalent, no difference shown, or not comparable."""
    from uncork.bench.compare import compare as judge
    from uncork.cli.show import print_json
    from uncork.errors import NotComparable
    from uncork.model.comparison import Judgement

    first, second = _runs(before), _runs(after)
    names = [name.strip() for name in tested.split(",") if name.strip()]
    result = judge(first, second, tested=names, floor=_floor(noise, (before, after), first, second))
    if as_json:
        print_json(result)
    else:
        _show(result)
        if model_path:
            _moved(first, second, model_path)
    if result.judgement is Judgement.NOT_COMPARABLE:
        raise NotComparable(
            f"The runs differ in more than what was tested: {'; '.join(result.differs)}.",
            next="measure again with the same settings, or name what was changed on purpose: --tested NAME",
        )
    raise typer.Exit(1 if result.judgement is Judgement.WORSE else 0)


def _runs(folders: str) -> "BenchRun":
    """The run in a folder, or several as one."""
    from uncork.bench.merge import merged
    from uncork.bound.levels import read_run

    return merged([read_run(folder) for folder in _folders(folders)])


def _folders(named: str) -> list[str]:
    from pathlib import Path

    return [named] if Path(named).exists() else named.split(",")


def _floor(noise: str, runs: tuple[str, str], first: "BenchRun", second: "BenchRun") -> dict[str, float]:
    """The floor of the file that was named, else of the first noise.json beside a run; of none, nothing."""
    from pathlib import Path

    from uncork.bench.noise import FILE, floors, read_noise
    from uncork.errors import BadInput

    named = [Path(one) for run in runs for one in _folders(run)]
    beside = [path if path.is_dir() else path.parent for path in named]
    places = [Path(noise)] if noise else [folder / FILE for one in beside for folder in (one, one.parent)]
    found = next((known for place in places if (known := read_noise(place))), None)
    if noise and found is None:
        raise BadInput(
            f"{noise} is not there; nothing was compared.", next="uncork bench --noise 5 --out DIR"
        )
    return floors(found, first, second) if found else {}


def _show(result: "Comparison") -> None:
    from uncork.bench.compare import interval_words
    from uncork.cli.show import clean, console

    out = console()
    out.print(clean(result.says[:1].upper() + result.says[1:]))
    out.print()
    out.print(f"{'level':<14}{'metric':<17}{'before':>10}{'after':>10}{'change':>9}  interval")
    for one in (*result.overall, *result.levels):
        line = f"{one.level or 'all':<14}{one.metric:<17}{one.before:>10.2f}{one.after:>10.2f}{one.ratio - 1:>+9.1%}"
        interval = interval_words(one) if one.low and one.high and one.high <= 10 * one.low else "none"
        out.print(clean(f"{line}  {interval}"))
    needed = max((one.repeats_needed or 0 for one in result.overall), default=0)
    if needed:
        out.print(f"\nWith about {needed} repeats a run this would be settled, if it is real.")
    unknown = [f"{name}: neither run could read it" for name in result.unknown]
    for name, lines in (("under test", result.tested), ("unknown", unknown), ("note", result.notes)):
        for line in lines:
            out.print(f"{name}: {clean(line)}")


def _moved(before: "BenchRun", after: "BenchRun", model_path: str) -> None:
    from pathlib import Path

    from uncork.bound import levels, model_bytes
    from uncork.cli.show import clean, console
    from uncork.host.live import LiveHost
    from uncork.loop.measure import host_hardware
    from uncork.model.bound import Parallel

    model = model_bytes(Path(model_path))
    hardware = host_hardware(LiveHost(), model.weight_bytes)
    rows = [levels.against(model, hardware, Parallel(), levels.measured_in(run)) for run in (before, after)]
    out = console()
    out.print("\nWhere the time of a token moved:")
    for line in levels.shift_lines(levels.shifts(*rows)):
        out.print(clean(line))
