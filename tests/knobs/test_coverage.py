"""Every check that can be cured at run time names its knob, or why there is none."""

import json
import re
from pathlib import Path

import pytest

from uncork.knobs import KNOBS

ROOT = Path(__file__).parents[2]
CATALOGUE = ROOT.parent / "shared/facts/checks.json"
PAGE = ROOT / "docs/how-to/add-a-knob.md"


def table() -> dict[str, str]:
    """The cure of each check, as the page has it."""
    rows = re.findall(
        r"^\| ([a-z-]+\.[a-z0-9-]+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    return dict(rows)


@pytest.mark.skipif(not CATALOGUE.is_file(), reason="the catalogue of checks is not beside the checkout")
def test_every_p0_and_p1_that_can_be_cured_at_run_time_is_in_the_table():
    checks = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    wanted = {
        one["id"] for one in checks if one["change_class"] == "runtime" and one["priority"] in ("P0", "P1")
    }

    assert set(table()) == wanted


def test_the_table_names_knobs_that_exist_or_says_none():
    cures = {check: re.findall(r"`([a-z_]+)`", cure) for check, cure in table().items()}
    named = {check: [name for name in names if name in KNOBS] for check, names in cures.items()}

    assert [check for check, names in named.items() if not names] == ["numa.node-free-memory"]
    assert table()["numa.node-free-memory"].startswith("none: ")
