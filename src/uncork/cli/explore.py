"""uncork explore: model-driven explorers beside the rules."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.agents.explorers.run import Budget, Explored, Served
    from uncork.model.findings import Result

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def explore(
    model: Annotated[str, typer.Option(help="URL of any OpenAI-compatible endpoint.")],
    name: Annotated[str, typer.Option(help="The model's name there; the first one listed otherwise.")] = "",
    dimensions: Annotated[str, typer.Option(help="Some of the fourteen, comma-separated.")] = "",
    steps: Annotated[int, typer.Option(help="Requests an explorer may make.")] = 12,
    seconds: Annotated[float, typer.Option(help="Seconds an explorer may take.")] = 120.0,
    tokens: Annotated[int, typer.Option(help="Tokens an explorer may use.")] = 60_000,
    answer_tokens: Annotated[int, typer.Option(help="Tokens an answer may have.")] = 1_500,
    no_tools: Annotated[
        bool, typer.Option("--no-tools", help="For a model that calls no tools: facts in, JSON out.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print claims and endings as JSON.")] = False,
) -> None:
    """Let a model look for what no rule foresees; its claims are checked, marked, and change no plan.

    The key of the endpoint is taken from UNCORK_MODEL_KEY.
    """
    import os
    from importlib.util import find_spec

    from uncork.errors import MissingExtra

    if find_spec("pydantic_ai") is None:
        raise MissingExtra(
            "Explorers need the extra `agents`; nothing was started.", next="pip install 'uncork[agents]'"
        )
    from uncork.agents.explorers.run import Budget, Served
    from uncork.loop.server import named_server

    chosen = _chosen(dimensions)
    server = named_server(model, name)
    key = os.environ.get("UNCORK_MODEL_KEY", "none")
    budget = Budget(steps=steps, seconds=seconds, tokens=tokens, answer_tokens=answer_tokens)
    _look_and_send(Served(server.endpoint, server.model, key, not no_tools), chosen, budget, as_json)


def _chosen(dimensions: str) -> tuple[str, ...]:
    from uncork.errors import BadInput
    from uncork.explorers import DIMENSIONS

    chosen = tuple(part.strip() for part in dimensions.split(",") if part.strip()) or DIMENSIONS
    if unknown := [part for part in chosen if part not in DIMENSIONS]:
        raise BadInput(f"No dimension is called {', '.join(unknown)}; there are {', '.join(DIMENSIONS)}.")
    return chosen


def _look_and_send(served: "Served", dimensions: tuple[str, ...], budget: "Budget", as_json: bool) -> None:
    """Show what rules found, then send the explorers out and show what they claim."""
    from uncork.agents.explorers.run import send_out
    from uncork.audit import confirm, judge
    from uncork.cli.show import console, print_json
    from uncork.explorers import explore as look
    from uncork.host.live import LiveHost
    from uncork.host.recording import RecordingHost

    host = RecordingHost(LiveHost())
    seen = look(host)
    results = judge(seen.facts)
    if not as_json:  # what rules found waits for no model
        _show_rules(results)
    err = console(stderr=True)

    def progress(dimension: str, state: str) -> None:
        err.print(f"{dimension:<15} {state}", overflow="ellipsis", no_wrap=True)

    explored = send_out(host, seen.facts, served, dimensions=dimensions, budget=budget, progress=progress)
    if as_json:
        print_json({"results": results, "right": confirm(results), "unconfirmed": explored})
        return
    _show_claims(explored)


def _show_rules(results: "tuple[Result, ...]") -> None:
    from uncork.cli.show import clean, console
    from uncork.model.findings import Answer

    out = console()
    failing = [one for one in results if one.answer is Answer.FAIL]
    out.print(f"Found by rules: {len(failing)}")
    for one in failing[:20]:
        out.print(f"  {one.priority.value:<4} {clean(one.says)}  {one.id}", overflow="ellipsis", no_wrap=True)


def _show_claims(explored: "Explored") -> None:
    from uncork.cli.show import clean, console

    out = console()
    out.print(f"\nClaimed by a model, every quote looked up, none of it confirmed: {len(explored.claims)}")
    for claim in explored.claims:
        out.print(f"  {claim.dimension}: {clean(claim.finding)}")
        for source, text in claim.evidence:
            out.print(f"      {clean(source)}: {clean(text)}", overflow="ellipsis", no_wrap=True)
    if explored.dropped:
        out.print(f"\nDropped: {explored.dropped} claims whose evidence was not in what the tools returned.")
    lost = {name: ending for name, ending in explored.endings.items() if not ending.startswith("ok")}
    for name, ending in lost.items():
        out.print(f"No answer from {name}: {clean(ending)}")
    out.print("\nNext: uncork explain ID (a rule's finding); a claim is a place to look, not a finding.")
