"""uncork persist."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.plan.store import Store

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def persist(
    undo: Annotated[bool, typer.Option("--undo", help="Take away what persist wrote.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files and write none.")] = False,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Also where no comparison has shown what it is worth.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Keep over a reboot what was applied, proven and kept: write boot files. Nothing running changes."""
    from uncork.apply import persist as files
    from uncork.cli.show import clean, print_json
    from uncork.errors import Refused
    from uncork.plan.store import Store

    with Store(create=False) as store:
        if undo:
            _undo(store, as_json)
            return
        plan = store.read()
        if not files.kept(store):
            raise Refused("Nothing that uncork set is in force and confirmed.", next="uncork run")
        proven = any(step.kind == "compare" and step.status == "completed" for step in plan.steps)
        if not proven and not unproven and not dry_run:
            raise Refused(
                "No comparison has shown what these changes are worth; no file was written.",
                next="uncork run --resume, or uncork persist --unproven",
            )
        draft = files.draft(store)
        by_hand = [one for one in plan.deferred if one.change_class in ("reboot", "firmware")]
        if dry_run:
            if as_json:
                print_json({"files": draft.files, "notes": draft.notes, "by_hand": by_hand})
                return
            for path, text in draft.files.items():
                print(clean(f"== {path}\n{text}"))
        else:
            _print(files.write(store, draft.files), as_json, "No file is needed.")
    if as_json:
        return
    for note in draft.notes:
        print(clean(f"by hand: {note}"))
    for one in by_hand:
        print(clean(f"by hand ({one.change_class}): {one.says}" + (f"; {one.fix}" if one.fix else "")))
    print(
        "next: " + ("uncork persist (writes them)" if dry_run else "uncork persist --undo (takes them away)")
    )


def _undo(store: "Store", as_json: bool) -> None:
    """Take the files away; raises UndoFailed where one is no longer what was written."""
    from uncork.apply import persist as files
    from uncork.errors import UndoFailed

    ends = files.undo(store)
    _print(ends, as_json, "Nothing to undo: persist has written no file that is still there.")
    left = [end for end in ends if end.end in ("drift", "failed")]
    if left:
        raise UndoFailed(
            "Not taken away: " + ", ".join(f"{end.path} ({end.says})" for end in left) + ".",
            next="; ".join(f"look at {end.path}" for end in left),
        )


def _print(ends: object, as_json: bool, none: str) -> None:
    from uncork.cli.show import print_json

    if as_json:
        print_json(ends)
        return
    for end in ends:  # type: ignore[attr-defined]
        print(f"{end.end:8} {end.path} {end.says}".rstrip())
    if not ends:
        print(none)
