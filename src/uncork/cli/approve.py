"""uncork approve."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def approve(
    digest: Annotated[str, typer.Argument(help="The first 8 digits of the digest shown.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Approve the exact changes of the plan. Without a digest: show them, and the call that approves them."""
    from uncork.apply.chain import actor, who
    from uncork.cli.show import clean, console, print_json
    from uncork.plan.approvals import approve as give
    from uncork.plan.fold import fold
    from uncork.plan.reading import to_approve
    from uncork.plan.store import Store

    with Store(create=False) as store:
        plan = store.read()
        if digest:
            given = give(store, plan, digest, by=who(actor()), how="uncork approve")
            if as_json:
                print_json(given)
            else:
                print(f"Approved {given.digest[:8]} of plan {plan.id}; it is used once.")
                print("next: uncork run --resume (goes on), uncork plan --watch (if it is running already)")
            return
        if as_json:
            print_json({"digest": plan.digest, "steps": to_approve(plan.steps)})
            return
        out = console()
        steps = to_approve(plan.steps)
        for step in steps:
            out.print(clean(f"{step.name}: {step.title}"))
            for line in fold(step.changes):
                out.print(clean(f"  {line}"))
        out.print(f"next: uncork approve {plan.digest[:8]}" if steps else "Nothing waits for an approval.")
