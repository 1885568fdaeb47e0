"""uncork audit."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from uncork.model.findings import Audit

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SnapshotPaths = Annotated[
    list[Path] | None,
    typer.Option(
        "--snapshot",
        metavar="PATH",
        help="Audit a snapshot, or files and folders that people attach, instead of this host. May be repeated.",
    ),
]


@app.command()
def audit(
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH]...", help="More paths for --snapshot.")
    ] = None,
    snapshot: SnapshotPaths = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every result as JSON.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Print every subject and every answer.")] = False,
    prom: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write findings for node_exporter's textfile collector."),
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(metavar="P0|P1|P2", help="End with status 1 on a finding of this priority or above."),
    ] = "",
    diff: Annotated[
        Path | None, typer.Option(metavar="OLD.json", help="Print what changed since that audit.")
    ] = None,
    host_script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what only the host's administrator can change.")
    ] = None,
) -> None:
    """Look at this host and rank what is wrong. Needs no root and changes nothing."""
    from uncork.cli.look import look
    from uncork.errors import BadInput

    paths = [*(snapshot or []), *(more or [])]
    if more and not snapshot:
        raise BadInput(
            "Paths were given without --snapshot; nothing was audited.",
            next="uncork audit --snapshot PATH...",
        )
    if fail_on and fail_on.upper() not in ("P0", "P1", "P2"):
        raise BadInput(f"--fail-on is P0, P1 or P2, not {fail_on!r}; nothing was audited.")
    old = _old(diff)
    found, _, left_out = look(paths)
    if prom:
        from uncork.cli.audit_files import prometheus, write

        write(prom, prometheus(found))
    if host_script:
        _script(found, host_script)
    if old is not None:
        judged = _difference(old, found, as_json)
    elif as_json:
        from uncork.cli.show import print_json

        judged = found
        print_json(found)
    else:
        from uncork.cli.audit_table import show
        from uncork.cli.show import console

        judged = found
        show(console(), found, everything=everything, left_out=left_out, arguments=_arguments(paths))
    if fail_on and _reaches(judged, fail_on.upper()):
        raise typer.Exit(1)


def _arguments(paths: list[Path]) -> str:
    import shlex

    return "".join(f" --snapshot {shlex.quote(str(path))}" for path in paths)


def _old(path: Path | None) -> "Audit | None":
    if path is None:
        return None
    from uncork.cli.audit_files import read_old

    return read_old(path)


def _reaches(audit: "Audit", priority: str) -> bool:
    from uncork.model.findings import Answer, Priority

    ranks = list(Priority)
    limit = ranks.index(Priority(priority))
    return any(one.answer is Answer.FAIL and ranks.index(one.priority) <= limit for one in audit.results)


def _script(audit: "Audit", to: Path) -> None:
    from uncork.cli.audit_files import host_script, write

    text, count = host_script(audit)
    write(to, text, mode=0o700)
    sys.stderr.write(f"{to}: {count} changes for the host's administrator\n")


def _difference(old: "Audit", new: "Audit", as_json: bool) -> "Audit":
    """Print what changed; what `--fail-on` then judges is what appeared."""
    import msgspec

    from uncork.cli.audit_files import difference
    from uncork.cli.show import clean, console, print_json

    changed = difference(old, new)
    if as_json:
        print_json(changed)
    else:
        out = console()
        for one in changed.appeared:
            subject = f" ({clean(one.subject)})" if one.subject else ""
            out.print(f"new    {one.priority:<4}{one.id}: {clean(one.says)}{subject}")
        for title, moves in (("gone", changed.gone), ("other", changed.changed)):
            for move in moves:
                subject = f" ({clean(move.subject)})" if move.subject else ""
                was = f"{move.before or 'not asked'} -> {move.after or 'not asked'}"
                out.print(f"{title:<7}{move.priority:<4}{move.id}{subject}: {was}: {clean(move.says)}")
        if not (changed.appeared or changed.gone or changed.changed):
            out.print("Nothing changed since that audit.")
        elif changed.appeared:
            out.print(f"\nNext: uncork explain {changed.appeared[0].id}")
    return msgspec.structs.replace(new, results=changed.appeared)
