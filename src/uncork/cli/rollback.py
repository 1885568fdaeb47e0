"""uncork rollback."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def rollback(
    why: Annotated[str, typer.Option("--why", help="Your words; they are kept.")] = "uncork rollback",
    as_json: Annotated[bool, typer.Option("--json", help="Print what became of each target.")] = False,
) -> None:
    """Put back everything uncork changed that is still as it set it, and end the plan."""
    from uncork.apply.chain import actor, who
    from uncork.apply.rollback import rollback as put_back
    from uncork.cli.show import clean, console, print_json
    from uncork.errors import NotFound, UndoFailed
    from uncork.plan import directives
    from uncork.plan.store import Store

    me = actor()
    try:
        store = Store(create=False)
    except NotFound:
        print("Nothing to undo: uncork has changed nothing here.")
        return
    with store:
        done = put_back(store, why=why, actor=me)
        if store.plans() and (plan := store.read()).state in ("active", "paused", "frozen"):
            directives.abort(store, plan, words=why, by=who(me))
    if as_json:
        print_json(done)
    out = console(stderr=as_json)
    if not done:
        out.print("Nothing to undo: nothing that uncork set is in force.")
    for group in done:
        for one in group.outcomes:
            out.print(f"{one['end']:7} {clean(one['target'])}: {clean(str(one['now']))}")
    left = [one for group in done for one in group.left]
    if left:
        raise UndoFailed(
            f"{len(left)} not put back: " + ", ".join(f"{o['target']} ({_SAID[o['end']]})" for o in left),
            next="; ".join(o["by_hand"] for o in left if o["by_hand"]) or "uncork journal",
        )
    if done and not as_json:
        out.print("Everything is as it was. next: uncork audit")


_SAID = {
    "drift": "someone else has changed it since; left alone",
    "failed": "the write failed",
    "stuck": "the write has not returned",
}
