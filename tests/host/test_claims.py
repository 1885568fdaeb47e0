"""The short way to a line's kind answers what the long way would."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uncork.host.claims import CLAIM, NAMES, claimed

HERE = Path(__file__).parents[1]
SHARED = HERE / "../../shared"
TEXTS = [
    *(HERE / "cases" / name for name in ("kinds.txt", "quiet.txt")),
    HERE / "parsers" / "lines.txt",
    *sorted(path for path in SHARED.glob("cases/*/*") if path.name != "case.json"),
    *sorted(path for path in SHARED.glob("dumps/*/*") if path.is_file()),
]
LINES = (HERE / "parsers" / "lines.txt").read_text(encoding="utf-8").split("\n")


def _the_long_way(line):
    found = CLAIM.match(line)
    return None if found is None or found.lastgroup is None else NAMES[int(found.lastgroup[1:])]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_line_of_a_text_is_claimed_alike(path):
    lines = {line[:600] for line in path.read_text(encoding="utf-8", errors="replace").split("\n")}

    assert [line for line in sorted(lines)[:3000] if claimed(line) != _the_long_way(line)] == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.text(max_size=20)), max_size=3).map("".join))
def test_any_line_is_claimed_alike(line):
    line = line.replace("\n", " ")[:600]

    assert claimed(line) == _the_long_way(line)
