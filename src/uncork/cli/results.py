"""uncork results: result files of other tools, and ours in their shape."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.model.imported import Imported

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def results(
    files: Annotated[
        list[str], typer.Argument(help="Result files of other tools, or folders of uncork bench.")
    ],
    export: Annotated[str, typer.Option(help="Write our run as vllm, sglang, jsonl or csv to stdout.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was read as JSON.")] = False,
) -> None:
    """Read results of vllm, sglang, aiperf, GenAI-Perf, guidellm, inference-perf and InferenceX; or export ours."""
    from pathlib import Path

    from uncork.bench.exporters import FORMATS
    from uncork.bench.importers import read_results
    from uncork.cli.show import print_json
    from uncork.errors import BadInput

    if export:
        if export not in FORMATS:
            raise BadInput(f"There is no format {export!r}.", next=f"use one of {', '.join(FORMATS)}")
        _export(files, export)
        return
    found = {name: read_results(Path(name)) for name in files}
    if as_json:
        print_json(found)
        return
    _show(found)


def _export(files: list[str], form: str) -> None:
    import sys

    from uncork.bench.exporters import FORMATS
    from uncork.bound.levels import read_run

    for name in files:
        sys.stdout.write(FORMATS[form](read_run(name)))


def _show(found: "dict[str, tuple[Imported, ...]]") -> None:
    from uncork.cli.show import clean, console

    def cell(value: float | None, form: str = ".1f") -> str:
        return "-" if value is None else f"{value:{form}}"

    out = console()
    for name, levels in found.items():
        out.print(f"{clean(name)}: {levels[0].tool}", overflow="ellipsis", no_wrap=True)
        out.print(
            f"  {'users':>6}{'rate/s':>8}{'done':>7}{'tok/s':>10}{'TTFT p50':>11}{'TPOT p50':>10}{'ITL p50':>9}  ms"
        )
        for one in levels:
            times = (
                cell(one.ttft.median_ms),
                cell(one.tpot.median_ms, ".2f"),
                cell(one.itl.median_ms, ".2f"),
            )
            users = "-" if one.max_concurrency is None else str(one.max_concurrency)
            done = "-" if one.completed is None else str(one.completed)
            out.print(
                f"  {users:>6}{cell(one.request_rate_s, 'g'):>8}{done:>7}{cell(one.output_tok_s):>10}"
                f"{times[0]:>11}{times[1]:>10}{times[2]:>9}"
            )
            for note in one.notes:
                out.print(f"    {clean(note)}")
