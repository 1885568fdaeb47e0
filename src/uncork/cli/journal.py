"""uncork journal: what was done to this host, by whom, and whether the record of it is intact."""

from typing import Annotated, Any

import typer

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
    "armed": "{guard}",
}


def _says(body: dict[str, Any]) -> str:
    form = _SAYS.get(body["kind"])
    return form.format(**body) if form else str(body.get("step") or body.get("path") or "")


@app.command()
def verify(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Check every hash. It shows accident and casual editing; root can rewrite the whole chain."""
    from uncork.apply import chain
    from uncork.cli.show import print_json
    from uncork.errors import Corrupt
    from uncork.plan.store import Store, refusing

    with Store(create=False) as store, refusing():
        wrong = chain.broken(store.db)
        rows, head = chain.head(store.db)
    if wrong:
        raise Corrupt(
            "The journal is not as it was written: " + "; ".join(wrong[:5]) + ".",
            next="compare with the head noted in system-improve.md, and restore state.db from a backup",
        )
    if as_json:
        print_json({"rows": rows, "head": head})
    else:
        print(f"{rows} rows, chain intact, head {head}")
        print("next: compare the head with the one at the end of system-improve.md")
