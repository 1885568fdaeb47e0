"""Each example host (tests/hosts/**/*.json) gets the answers that it names."""

from pathlib import Path

import pytest
from tests.hosts import HERE, load

from uncork.audit import judge
from uncork.explorers import explore

EXAMPLES = sorted(path for path in HERE.rglob("*.json") if path.parent.name != "base")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.relative_to(HERE).with_suffix("")))
def test_example_gets_its_answers(path: Path):
    host, expect = load(path)
    answers: dict[str, dict[str, str]] = {}
    for result in judge(explore(host).facts):
        answers.setdefault(result.id, {})[result.subject] = str(result.answer)

    actual = {
        id: answers[id]
        if isinstance(expected, dict)
        else "|".join(sorted(set(answers.get(id, {"": "no such check"}).values())))
        for id, expected in expect.items()
    }

    assert actual == expect
