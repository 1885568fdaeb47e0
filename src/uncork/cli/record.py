"""uncork record: read system-improve.md, and prove that its sealed part is what was sealed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.model.plan import Plan
    from uncork.plan.store import Store

app = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)

Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
PlanId = Annotated[str | None, typer.Argument(help="A plan; the newest otherwise.", metavar="[PLAN]")]


@app.callback()
def record(context: typer.Context, as_json: Json = False) -> None:
    """List the records of this host. `show` prints one, `verify` proves that nobody changed it."""
    if context.invoked_subcommand:
        return
    from uncork.cli.show import clean, print_json
    from uncork.plan.store import Store

    with Store(create=False) as store:
        rows = [(store.read(plan_id), _path(store, plan_id)) for plan_id, _ in store.plans()]
    if as_json:
        print_json([_entry(plan, path) for plan, path in rows])
        return
    for plan, path in rows:
        where = str(path) if path.exists() else "no record: the plan ended before one was written"
        print(clean(f"{plan.id}  {plan.state:8}  {where}"))
    print("next: uncork record show [PLAN], uncork record verify [PLAN], uncork report [PLAN]")


def _path(store: "Store", plan_id: str) -> Path:
    from uncork.loop.run import artefacts
    from uncork.record.seal import NAME

    return artefacts(store.folder, plan_id) / NAME


def _entry(plan: "Plan", path: Path) -> dict[str, str | None]:
    shown = str(path) if path.exists() else None
    return {"plan": plan.id, "state": plan.state, "record": shown, "sha256": plan.record_sha256}


@app.command()
def show(plan_id: PlanId = None, as_json: Json = False) -> None:
    """Print a record as it stands."""
    from uncork.cli.show import clean, print_json
    from uncork.errors import NotFound
    from uncork.plan.store import Store

    with Store(create=False) as store:
        plan = store.read(plan_id)
        path = _path(store, plan.id)
    if not path.exists():
        raise NotFound(f"Plan {plan.id} has no record yet.", next="uncork plan (shows what it waits for)")
    text = path.read_text(encoding="utf-8", errors="replace")
    if as_json:
        print_json(_entry(plan, path) | {"text": text})
    else:
        print(clean(text), end="")


@app.command()
def verify(plan_id: PlanId = None, as_json: Json = False) -> None:
    """Compare a record's sealed part with the hash kept in the plan, and its footer with the journal."""
    from uncork.apply import chain
    from uncork.cli.show import print_json
    from uncork.errors import Corrupt, NotFound
    from uncork.plan.store import Store
    from uncork.record import seal

    with Store(create=False) as store:
        plan = store.read(plan_id)
        path = _path(store, plan.id)
        if plan.record_sha256 is None:
            raise NotFound(f"Plan {plan.id} has no sealed record.", next="uncork plan")
        seal.verify(path, plan.record_sha256)
        if against := chain.contradicts(store.db, path.read_text(encoding="utf-8")):
            raise Corrupt(f"{path} disagrees with the journal: {against}.", next="uncork journal verify")
    if as_json:
        print_json(_entry(plan, path) | {"verdict": "as sealed"})
    else:
        print(f"{path}\nas it was sealed: sha256 {plan.record_sha256}; its footer agrees with the journal")
        print("next: uncork journal verify (checks the journal itself)")
