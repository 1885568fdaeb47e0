"""The command line answers at once: `--help` imports no verb and nothing heavy."""

import importlib
import subprocess
import sys

import pytest

from uncork.cli import VERBS

HEAVY = (
    "rich",
    "msgspec",
    "sqlite3",
    "asyncio",
    "numpy",
    "pydantic",
    "mcp",
    "bokeh",
    "psutil",
    "http.client",
    "ssl",
)


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['uncork', '--help']\n"
        "from uncork.cli.main import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "print('\\nMODULES', *sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.partition("MODULES")[2].split())

    assert loaded.isdisjoint(HEAVY)
    assert {name for name in loaded if name.startswith("uncork")} == {
        "uncork",
        "uncork.cli",
        "uncork.cli.light",
        "uncork.cli.main",
        "uncork.errors",
    }


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_file_with_help(verb):
    module = importlib.import_module(f"uncork.cli.{verb.replace('-', '_')}")

    assert module.app.registered_commands or module.app.registered_callback
    assert module.__doc__
