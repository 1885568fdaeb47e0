"""uncork audit."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def audit(
    as_json: Annotated[bool, typer.Option("--json", help="Print every result as JSON.")] = False,
) -> None:
    """Look at this host and rank what is wrong. Needs no root and changes nothing."""
    from uncork.audit import audit as look
    from uncork.cli.show import clean, console, print_json
    from uncork.host.live import LiveHost
    from uncork.host.recording import RecordingHost
    from uncork.model.findings import Answer

    found = look(RecordingHost(LiveHost()))
    if as_json:
        print_json(found)
        return
    out = console()
    for result in found.results:
        if result.answer is Answer.FAIL:
            out.print(f"{result.priority}  {clean(result.says)}  {clean(result.subject)}")
    for dimension, line in found.right.items():
        out.print(f"ok  {dimension}: {clean(line)}", overflow="ellipsis", no_wrap=True)
