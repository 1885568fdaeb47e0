"""uncork brief."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def brief(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """The plan, the findings and the next allowed calls, short enough to paste to an assistant."""
    from uncork.agents.brief import brief as text_of
    from uncork.cli.show import print_json
    from uncork.plan.store import Store

    with Store() as store:
        text = text_of(store)
    if as_json:
        print_json({"brief": text})
    else:
        typer.echo(text)
