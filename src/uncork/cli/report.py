"""uncork report: one HTML file that shows a run at a glance."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.plan.store import Store
    from uncork.record.report.story import Story

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def report(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            help="Plans, folders of a run or of a benchmark; the first is told in full, the others are overlaid."
            " The newest plan where none is named.",
            metavar="[PLAN|DIR ...]",
        ),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("report.html"),
    as_json: Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")] = False,
) -> None:
    """Write the report: it opens from disk, needs no network and holds no script."""
    import time

    import msgspec

    from uncork.cli.look import shown
    from uncork.cli.show import clean, print_json
    from uncork.record.report.charts import available
    from uncork.record.report.page import page

    stories = stories_of(runs or [])
    if found := stories[0].audit:  # a report is mailed: serial numbers, MACs and UUIDs stay here
        stories[0] = msgspec.structs.replace(stories[0], audit=shown(found))
    stories[0] = msgspec.structs.replace(stories[0], written_at=time.strftime("%Y-%m-%d %H:%M:%S %z"))
    size_bytes = write(output, page(stories))
    if as_json:
        print_json({"file": str(output), "size_bytes": size_bytes, "runs": [one.name for one in stories]})
        return
    print(clean(f"{output}: {size_bytes / 1e3:,.0f} kB, {', '.join(one.name for one in stories)}"))
    if not available():
        print("Curves are left out, their numbers are in: matplotlib is not installed (uncork[report]).")
    print("next: open it in a browser; it is one file and needs nothing else")


def stories_of(runs: list[str]) -> "list[Story]":
    """The story of each plan or folder; of the newest plan where none is named. Raises `NotFound`, `BadInput`."""
    from uncork.plan.store import Store
    from uncork.record.report import reading

    found = []
    for name in runs or [""]:
        path = Path(name)
        if name and path.exists():
            found.append(reading.any_of(path))
        else:
            with Store(create=False) as store:
                found.append(story_of(store, name or None))
    return found


def story_of(store: "Store", plan_id: str | None) -> "Story":
    """The story of a plan of this host, with its journal rows. Raises `NotFound`, `Corrupt`."""
    import json

    from uncork.apply import chain
    from uncork.loop.run import artefacts
    from uncork.record.report import reading

    plan = store.read(plan_id)
    ours = {hold.txn for hold in plan.holds}
    bodies = (json.loads(row["body"]) for row in store.db.execute("SELECT body FROM journal ORDER BY seq"))
    return reading.from_folder(
        artefacts(store.folder, plan.id),
        plan=plan,
        rows=tuple(body for body in bodies if body["txn"] in ours),
        chain_head=chain.footer(store.db).partition(" (")[0],
    )


def write(path: Path, text: str) -> int:
    """Write the file whole or not at all; its size in bytes. Raises `BadInput`."""
    from uncork.errors import BadInput
    from uncork.state import write_whole

    data = text.encode("utf-8")
    try:
        write_whole(path, data, mode=0o644)
    except OSError as error:
        raise BadInput(
            f"{path} cannot be written ({error.strerror}); no report was written.",
            next="-o ANOTHER/report.html",
        ) from error
    return len(data)
