"""Every change that a check proposes can be carried out by a knob, and says what was there before."""

from collections import Counter
from pathlib import Path

import pytest
from tests.hosts import HERE, load

from uncork import knobs
from uncork.audit import judge
from uncork.explorers import explore
from uncork.model.findings import Change, Result

EXAMPLES = sorted(path for path in HERE.rglob("*.json") if path.parent.name != "base")


@pytest.fixture(scope="module")
def audits() -> dict[str, tuple[Result, ...]]:
    """What is said of each example host."""
    return {str(path.relative_to(HERE)): judge(explore(load(path)[0]).facts) for path in EXAMPLES}


@pytest.fixture(scope="module")
def failures(audits: dict[str, tuple[Result, ...]]) -> list[Result]:
    return [result for results in audits.values() for result in results if result.answer == "fail"]


def test_a_check_says_one_thing_of_one_subject(audits: dict[str, tuple[Result, ...]]):
    said = {name: Counter((one.id, one.subject) for one in results) for name, results in audits.items()}
    twice = {name: [key for key, count in counts.items() if count > 1] for name, counts in said.items()}

    assert {name: keys for name, keys in twice.items() if keys} == {}


def test_every_change_names_a_knob_that_understands_its_target(failures: list[Result], tmp_path: Path):
    known = knobs.knobs_at(str(tmp_path))
    changes = {change for result in failures for change in result.changes}

    wrong = [change for change in changes if not _recipe(known, change)]

    assert wrong == []
    assert len(changes) > 20


def _recipe(known: knobs.Mapping[str, knobs.Knob], change: Change) -> bool:
    try:
        return change.knob in known and bool(known[change.knob].recipe(change.target))
    except (FileNotFoundError, ProcessLookupError):
        return True  # understood; the device or process of the example is not on this machine


def test_a_change_is_the_first_of_all_changes(failures: list[Result]):
    assert [r.id for r in failures if r.change != (r.changes[0] if r.changes else None)] == []


def test_nothing_is_planned_for_folklore(failures: list[Result]):
    folklore = {"kernel.nmi-watchdog", "kernel.sched-autogroup", "network.busy-poll", "kernel.thp-enabled"}

    assert [result.id for result in failures if result.id in folklore and result.changes] == []


def test_a_change_wants_something_else_than_there_was(failures: list[Result]):
    changes = [change for result in failures for change in result.changes]

    assert [change for change in changes if change.before == change.want] == []
