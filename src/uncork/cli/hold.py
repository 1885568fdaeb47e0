"""uncork hold: what reverts by itself, and when; extend or confirm it."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)

Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.callback()
def hold(context: typer.Context, as_json: Json = False) -> None:
    """Show the open holds: changes that revert by themselves unless they are confirmed."""
    if context.invoked_subcommand:
        return
    _show(as_json)


def _show(as_json: bool) -> None:
    from uncork.apply.hold import open_holds
    from uncork.cli.show import clean, print_json
    from uncork.plan.store import Store

    with Store(create=False) as store:
        plan = store.read()
    if as_json:
        print_json(open_holds(plan))
        return
    for one in open_holds(plan):
        step = next(step for step in plan.steps if step.id == one.step)
        print(clean(f"{one.txn}  {step.name}: {step.title} ({step.detail})"))
    print(
        "next: uncork hold extend --minutes 10" if open_holds(plan) else "No hold is open. next: uncork plan"
    )


@app.command()
def extend(
    minutes: Annotated[float, typer.Option("--minutes", help="From now.", min=0.1)] = 10.0,
    as_json: Json = False,
) -> None:
    """Move the deadline of every open hold to so many minutes from now."""
    from uncork.apply.hold import extend as later
    from uncork.apply.hold import open_holds
    from uncork.plan.store import Store

    with Store(create=False) as store:
        for one in open_holds(store.read()):
            later(store, one.txn, minutes * 60)
    _show(as_json)


@app.command()
def confirm(
    without_gate: Annotated[
        bool, typer.Option("--without-gate", help="Keep the changes though the gate has not passed.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Keep what is held. Refused before the gate has passed, unless you say otherwise."""
    from uncork.apply.hold import confirm_all, open_holds
    from uncork.errors import GateClosed, IllegalMove
    from uncork.plan.store import Store, find

    with Store(create=False) as store:
        plan = store.read()
        if not open_holds(plan):
            raise IllegalMove("No hold is open.", next="uncork plan")
        passed = find(plan, "gate").status == "completed"
        if not passed and not without_gate:
            raise GateClosed(
                "The gate has not passed for these changes; nothing was confirmed.",
                next="uncork hold extend (more time), or uncork hold confirm --without-gate",
            )
        confirm_all(store, plan, why="" if passed else "without the gate")
    _show(as_json)
