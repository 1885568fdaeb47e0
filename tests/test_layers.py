"""Imports go one way: nothing on the left of the house imports anything on its right."""

import ast
from pathlib import Path

import uncork

ORDER = [
    *(
        "model",
        "errors",
        "state",
        "compiler",
        "host",
        "parsers",
        "explorers",
        "checks",
        "audit",
        "knobs",
        "plan",
        "apply",
    ),
    *("gate", "bench", "bound", "record", "loop", "agents", "cli"),
]
ROOT = Path(uncork.__file__).parent


def _room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "uncork" and len(parts) > 1 and parts[1] in ORDER else None


def _imports(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


def test_every_file_stands_in_a_room():
    strays = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in ROOT.rglob("*.py")}

    assert strays - {"__init__"} == set(ORDER)


def test_imports_go_left():
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in ROOT.rglob("*.py")
        if (here := path.relative_to(ROOT).parts[0].removesuffix(".py")) in ORDER
        for name in _imports(path)
        if (there := _room(name)) and ORDER.index(there) > ORDER.index(here)
    ]

    assert wrong == []
