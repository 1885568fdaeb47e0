"""No published measurement beats the silicon tier, and the committed table says so."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ROOT / "../shared"
needs_shared = pytest.mark.skipif(
    not (SHARED / "facts/roofline-cases.json").is_file(), reason="needs the shared cases beside the checkout"
)


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bound_cases", ROOT / "benchmarks/bound_cases.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["bound_cases"] = module
    spec.loader.exec_module(module)
    return module


@needs_shared
def test_no_case_beats_the_silicon_tier() -> None:
    cases = script()

    results = [cases.evaluate(case, SHARED / "facts/model-configs") for case in cases.load(SHARED)]

    assert len(results) == 100
    assert [result.id for result in results if not 0 < result.measured <= result.bound] == []


@needs_shared
def test_the_committed_table_is_what_the_script_writes() -> None:
    cases = script()
    results = [cases.evaluate(case, SHARED / "facts/model-configs") for case in cases.load(SHARED)]

    assert (ROOT / "docs/bound-cases.md").read_text(encoding="utf-8") == cases.table(results)


def test_every_row_of_the_committed_table_is_below_its_bound() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (ROOT / "docs/bound-cases.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("|") and ":" in line and "---" not in line
    ]

    assert len(rows) == 100
    assert all(float(row[3].replace(",", "")) <= float(row[2].replace(",", "")) for row in rows)
