"""uncork journal: what was done to this host, by whom, and whether the record of it is intact."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from uncork.plan.store import Store

app = typer.Typer(rich_markup_mode=None, add_completion=False, invoke_without_command=True)


@app.callback()
def journal(
    context: typer.Context,
    last: Annotated[int, typer.Option("--last", "-n", help="How many rows; 0 for all.")] = 40,
    as_json: Annotated[bool, typer.Option("--json", help="Print whole rows as JSON.")] = False,
) -> None:
    """Show the newest rows. `uncork journal verify` checks the chain of hashes."""
    if context.invoked_subcommand:
        return
    import json

    from uncork.cli.show import clean, console, print_json
    from uncork.plan.store import Store

    with Store(create=False) as store:
        rows = store.db.execute(
            "SELECT body, hash FROM journal ORDER BY seq DESC LIMIT ?", (last if last > 0 else -1,)
        ).fetchall()
    bodies = [json.loads(row["body"]) | {"hash": row["hash"]} for row in reversed(rows)]
    if as_json:
        print_json(bodies)
        return
    out = console()
    for body in bodies:
        out.print(clean(_line(body)), overflow="ellipsis", no_wrap=True)
    out.print("next: uncork journal verify" if bodies else "The journal is empty: nothing was changed.")


def _line(body: dict[str, Any]) -> str:
    import time

    at = time.strftime("%m-%d %H:%M:%S", time.localtime(body["wall_ns"] / 1e9))
    by = body.get("actor", {})
    who = (
        f"  by {by.get('name') or by['kind']}" if by and body["kind"] in ("hold", "undo", "confirmed") else ""
    )
    return f"{body['seq']:>4} {at} {body['txn'][:6]} {body['kind']:10} {_says(body)}{who}"


_SAYS = {
    "intent": "{target}: {before} -> {want}",
    "applied": "{target} reads {got} ({end})",
    "failed": "{target}: {code} {says}",
    "undone": "{target} reads {now} ({end})",
    "drift": "{target} reads {now}, not ours any more; left alone",
    "undo": "{why}",
    "confirmed": "{why}",
    "armed": "{guard}",
}


def _says(body: dict[str, Any]) -> str:
    form = _SAYS.get(body["kind"])
    return form.format(**body) if form else str(body.get("step") or body.get("path") or "")


@app.command()
def verify(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Check every hash, and every record against them. Root can rewrite all of it: keep the head elsewhere."""
    from uncork.apply import chain
    from uncork.cli.show import print_json
    from uncork.errors import Corrupt
    from uncork.plan.store import Store, refusing

    with Store(create=False) as store, refusing():
        wrong = chain.broken(store.db)
        records, against = _records(store)
        rows, head = chain.head(store.db)
    if wrong or against:
        raise Corrupt(
            "The journal is not as it was written: " + "; ".join([*wrong[:5], *against[:5]]) + ".",
            next="compare with a copy of state.db and of the records, and find out who changed them",
        )
    if as_json:
        print_json({"rows": rows, "head": head, "records": records})
    else:
        print(f"{rows} rows, chain intact, {records} records agree, head {head}")
        print("next: keep the head where this host cannot write")


def _records(store: "Store") -> tuple[int, list[str]]:
    """How many records are as they were sealed and agree with the journal; what is wrong with the others."""
    from uncork.apply import chain
    from uncork.errors import Corrupt
    from uncork.loop.run import artefacts
    from uncork.record import seal

    good, wrong = 0, []
    for plan_id, _ in store.plans():
        path = artefacts(store.folder, plan_id) / seal.NAME
        sealed = store.read(plan_id).record_sha256
        if sealed is None:
            continue
        try:
            seal.verify(path, sealed)
            against = chain.contradicts(store.db, path.read_text(encoding="utf-8"))
        except Corrupt as error:
            against = error.says
        good += not against
        wrong += [f"{path}: {against}"] if against else []
    return good, wrong
