"""The command line's front door: finds the verb, turns errors into a clear sentence and an exit status."""

import importlib
import sys
from typing import Any

import typer
import typer.core
import typer.main

from uncork import __version__
from uncork.cli import VERBS
from uncork.cli.light import lighten
from uncork.errors import UncorkError


class _Verbs(typer.core.TyperGroup):
    """Verbs by name; the file of a verb is imported when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        verb = importlib.import_module(f"uncork.cli.{cmd_name.replace('-', '_')}")
        command = typer.main.get_command(verb.app)
        command.name = cmd_name
        lighten(command.get_params(ctx))
        return command

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)
        lighten(found)
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


app = typer.Typer(
    cls=_Verbs,
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"uncork {__version__}")
        raise typer.Exit()


@app.callback()
def uncork(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Find what holds back a host that serves language models, fix it with an undo, prove it, measure it."""


def main() -> None:
    """Run the command line; every foreseeable failure ends as a sentence and its exit status."""
    try:
        app()
    except UncorkError as error:
        report(error)
        sys.exit(error.exit)
    except KeyboardInterrupt:
        typer.echo("Interrupted; nothing more was changed.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader (head, less) has gone; Python would complain again while flushing at exit.
        sys.stdout = None
        sys.exit(141)
    except Exception:
        import traceback

        traceback.print_exc()
        typer.echo(
            "uncork: This is a bug of uncork, not of your host. Please report the lines above.", err=True
        )
        typer.echo("  next: uncork plan (what stands), uncork rollback (puts every change back)", err=True)
        sys.exit(70)


def report(error: UncorkError) -> None:
    """Say on stderr what happened and what to do next (as JSON when `--json` is on the command line)."""
    if "--json" in sys.argv:
        import msgspec

        line = {"error": error.code, "says": error.says, "next": error.next, "exit": error.exit}
        typer.echo(msgspec.json.encode(line).decode(), err=True)
        return
    typer.echo(f"uncork: {error.says}", err=True)
    if error.next:
        typer.echo(f"  next: {error.next}", err=True)


if __name__ == "__main__":
    main()
