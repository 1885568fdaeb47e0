"""uncork explain."""

from typing import TYPE_CHECKING, Annotated

import typer

from uncork.cli.audit import SnapshotPaths

if TYPE_CHECKING:
    from uncork.checks import Check
    from uncork.model.findings import Result

app = typer.Typer(rich_markup_mode=None, add_completion=False)
SUBJECTS = 8
EVIDENCE = 6


@app.command()
def explain(
    id: Annotated[str, typer.Argument(metavar="ID", help="A check's id, as the audit prints it.")],
    snapshot: SnapshotPaths = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the explanation as JSON.")] = False,
) -> None:
    """Say why a check matters, what it read on this host, how to cure it and undo that, and when it is wrong."""
    from uncork import checks
    from uncork.cli.look import look
    from uncork.errors import NotFound

    catalogue = checks.load()
    if id not in catalogue:
        near = _near(id, list(catalogue))
        raise NotFound(
            f"There is no check {id!r}." + (f" Close: {', '.join(near)}." if near else ""),
            next=f"uncork explain {near[0]}" if near else "uncork audit --all lists the ids",
        )
    found, _, _ = look(snapshot or [])
    results = [one for one in found.results if one.id == id]
    if as_json:
        _json(catalogue[id], results)
    else:
        _show(catalogue[id], results)


def _near(id: str, known: list[str]) -> list[str]:
    """Ids that look alike, then those that hold the word."""
    import difflib

    close = difflib.get_close_matches(id, known, n=3, cutoff=0.55)
    tails = {name.partition(".")[2]: name for name in known}
    close += [
        tails[tail] for tail in difflib.get_close_matches(id.rpartition(".")[2], list(tails), n=3, cutoff=0.6)
    ]
    close += [name for name in known if id.lower() in name]
    return list(dict.fromkeys(close))[:5]


def _sections(check: "Check") -> dict[str, str]:
    return {
        "Effect": f"{check.effect} (how sure: {check.confidence})",
        "Fix": f"{check.fix or 'none'} ({check.change_class})",
        "Undo": check.undo,
        "Wrong when": check.wrong_when,
        "Folklore": check.folklore,
        "Source": check.source,
    }


def _json(check: "Check", results: "list[Result]") -> None:
    from uncork.cli.show import print_json

    print_json(
        {
            "id": check.id,
            "title": check.title,
            "priority": check.priority,
            "class": check.change_class,
            "dimension": check.dimension,
            "confidence": check.confidence,
            "effect": check.effect,
            "fix": check.fix,
            "undo": check.undo,
            "wrong_when": check.wrong_when,
            "folklore": check.folklore,
            "source": check.source,
            "results": results,
        }
    )


def _show(check: "Check", results: "list[Result]") -> None:
    from rich.padding import Padding
    from rich.text import Text

    from uncork.cli.show import clean, console
    from uncork.model.findings import Answer

    out = console()
    out.print(
        Text(f"{check.id}  ({check.priority} at worst, {check.dimension.replace('_', ' ')})", style="bold")
    )
    out.print(check.title)
    out.print()
    for one in results[:SUBJECTS]:
        subject = f" {clean(one.subject)}:" if one.subject else ""
        out.print(f"{one.answer} here:{subject} {clean(one.reason or one.says)}")
        for item in one.evidence[:EVIDENCE]:
            text = clean(item.text.strip())[:400]
            out.print(Padding(Text(f"{clean(item.source)}: {text}", style="dim"), (0, 0, 0, 4)))
        for change in one.changes[:EVIDENCE]:
            before = "" if change.before is None else f" (now {clean(change.before)})"
            line = f"would set {change.knob} {clean(change.target)} to {clean(change.want)}{before}"
            out.print(Padding(line, (0, 0, 0, 4)))
    if len(results) > SUBJECTS:
        out.print(f"… and {len(results) - SUBJECTS} more subjects: uncork explain {check.id} --json")
    out.print()
    for name, text in _sections(check).items():
        if text:
            out.print(Text(name, style="bold"))
            out.print(Padding(clean(text), (0, 0, 0, 4)))
    if any(one.answer is Answer.FAIL and one.changes for one in results):
        out.print(
            "\nNext: uncork run --dry-run   shows the exact changes; uncork run asks before it makes them"
        )
    else:
        out.print("\nNext: uncork audit")
