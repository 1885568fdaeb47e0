"""The how-to pages are true: their code is run as it stands, and a check needs nothing more than they show."""

import json
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hosts import DictHost, with_base

from uncork import checks
from uncork.explorers import explore
from uncork.model.unknown import is_unknown

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of one language on a page."""
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)


def module(name: str, code: str) -> types.ModuleType:
    """A module of this name with this code, as if its file were in the package."""
    made = types.ModuleType(name)
    sys.modules[name] = made
    exec(compile(code, name, "exec"), made.__dict__)
    return made


@pytest.fixture
def added() -> Iterator[None]:
    """The checks of the page, entered and taken out again."""
    before = dict(checks.load())
    names = [f"uncork.checks.kernel.how_to_{number}" for number in range(2)]
    for name, code in zip(names, blocks("add-a-check.md", "python"), strict=True):
        module(name, code)
    yield
    checks.CHECKS.clear()
    checks.CHECKS.update(before)
    for name in names:
        del sys.modules[name]


def test_a_check_is_one_function_or_one_row_and_one_recorded_host(added: None):
    (text,) = blocks("add-a-check.md", "json")
    example = json.loads(text)
    facts = explore(DictHost(**with_base(example))).facts

    answers = {
        id: [str(r.answer) for r in checks.answer(checks.CHECKS[id], facts)] for id in example["expect"]
    }

    assert answers == {id: [answer] for id, answer in example["expect"].items()}


def test_the_dimension_is_the_folder(added: None):
    assert checks.CHECKS["kernel.khugepaged-defrag"].dimension == "kernel"
    assert checks.CHECKS["kernel.dirty-background"].dimension == "kernel"


def test_an_explorer_is_one_function():
    (code,) = blocks("add-an-explorer.md", "python")
    (text,) = blocks("add-an-explorer.md", "json")
    fans = module("uncork_how_to_fans", code)

    speeds = fans.explore(DictHost(**json.loads(text))).speeds_rpm

    assert speeds["/sys/class/hwmon/hwmon2/fan1_input"] == 5400
    assert is_unknown(speeds["/sys/class/hwmon/hwmon2/fan2_input"])
