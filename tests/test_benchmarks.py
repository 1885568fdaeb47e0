"""Benchmarks and scripts are run by hand: what they take from the project must still be there."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("scripts/*.py")])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_name_that_it_imports_from_us_exists(path):
    gone = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "uncork"
        for alias in node.names
        if not hasattr(importlib.import_module(node.module), alias.name)
        and importlib.util.find_spec(f"{node.module}.{alias.name}") is None
    ]

    assert gone == []
