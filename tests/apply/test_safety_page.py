"""Each test that docs/safety.md names is there."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs/safety.md"


def test_every_promise_names_tests_that_exist():
    named, file = [], None
    for path, name in re.findall(
        r"`((?:\w+/)?\w+\.py|…|\w+/)(?:::(\w+))?`", PAGE.read_text(encoding="utf-8")
    ):
        if path != "…" and path.endswith(".py"):
            file = TESTS / path
        if (file and file.parent != TESTS) and (name or path.endswith(".py")):
            named.append((file, name))
    missing = [
        f"{file.name}::{name}"
        for file, name in named
        if not file.exists() or (name and f"def {name}(" not in file.read_text(encoding="utf-8"))
    ]

    assert missing == []
    assert len(named) > 35


def test_every_row_of_promises_names_a_test():
    section = PAGE.read_text(encoding="utf-8").partition("## Promises")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]

    assert [row for row in rows if not re.search(r"`(\w+/)?\w+\.py|`…::", row)] == []
    assert len(rows) > 40
