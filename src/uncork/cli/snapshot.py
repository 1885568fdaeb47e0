"""uncork snapshot."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def snapshot(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to store it.")] = Path(
        "host.tar.zst"
    ),
    redact_names: Annotated[
        bool, typer.Option("--redact-names", help="Also replace the host's and users' names.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was stored as JSON.")] = False,
) -> None:
    """Record everything an audit reads, without secrets, to be audited on another machine. Changes nothing."""
    from uncork.cli.look import look
    from uncork.cli.show import print_json
    from uncork.host import redact
    from uncork.host.snapshot import save

    found, host, _ = look([])
    names = redact.Names(host.name, _users()) if redact_names else None
    size = save(host.answers, host.name, output, names=names)
    if as_json:
        print_json(
            {"file": str(output), "bytes": size, "answers": len(host.answers), "explorers": found.explorers}
        )
        return
    typer.echo(f"{output}: {len(host.answers)} answers, {size / 1024:.0f} KiB")
    typer.echo(
        "Left out or replaced: environment variables not on the list of known ones, tokens and passwords, serial\n"
        "numbers, MACs, UUIDs"
        + (", host and user names." if names else ". Host and user names: --redact-names.")
    )
    typer.echo(f"Next: uncork audit --snapshot {output}")


def _users() -> tuple[str, ...]:
    """Names of people: accounts from 1000 up and the one that runs this."""
    import os
    import pwd

    names = {user.pw_name for user in pwd.getpwall() if 1000 <= user.pw_uid < 60000}
    try:
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    except KeyError:
        pass
    return tuple(sorted(names - {"root"}))
