"""Explorers + checks + ranking → Audit."""

from collections.abc import Iterable

from uncork import __version__, checks
from uncork.checks.excerpts import silent
from uncork.checks.vetoes import vetoed
from uncork.explorers import DEADLINE_S, DIMENSIONS, Exploration, Progress, explore
from uncork.host import Host
from uncork.model.facts import Facts
from uncork.model.findings import Answer, Audit, Priority, Result

SCHEMA = 1
CONFIRMED = 6  # what a line of things that are right names at most

_ANSWERS = (Answer.FAIL, Answer.UNKNOWN, Answer.PASS, Answer.NOT_APPLICABLE)
_PRIORITIES = (Priority.P0, Priority.P1, Priority.P2, Priority.INFO)


def audit(
    host: Host, *, deadline_s: float = DEADLINE_S, progress: Progress = lambda name, state: None
) -> Audit:
    """Explore the host and judge what was found; reads only, raises nothing for what it cannot see."""
    return of(host.name, explore(host, deadline_s=deadline_s, progress=progress))


def of(name: str, seen: Exploration) -> Audit:
    """What the audit says of a host that has been explored already."""
    results = judge(seen.facts)
    return Audit(SCHEMA, __version__, name, results, seen.endings, confirm(results))


def judge(facts: Facts) -> tuple[Result, ...]:
    """Every check's answers about these facts with the advice that holds on this host, ranked."""
    found = [result for one in checks.load().values() for result in checks.answer(one, facts)]
    return tuple(sorted(silent(vetoed(found, facts), facts), key=rank))


def rank(result: Result) -> tuple[int, int, int, str, str]:
    """Failures first, then by priority, dimension, id and subject: the same facts give the same order."""
    return (
        _ANSWERS.index(result.answer),
        _PRIORITIES.index(result.priority),
        DIMENSIONS.index(result.dimension),
        result.id,
        result.subject,
    )


def confirm(results: Iterable[Result]) -> dict[str, str]:
    """One line a dimension that says what is right, so that people know what not to chase.

    The weightiest come first; facts (priority info) and what is beyond `CONFIRMED` are only counted.
    """
    lines: dict[str, list[str]] = {}
    for result in sorted(results, key=rank):
        if result.answer is Answer.PASS and result.priority is not Priority.INFO:
            lines.setdefault(result.dimension, []).append(result.says)
    right: dict[str, str] = {}
    for name in DIMENSIONS:
        said = list(dict.fromkeys(lines.get(name, ())))
        more = f"; and {len(said) - CONFIRMED} more" if len(said) > CONFIRMED else ""
        if said:
            right[name] = "; ".join(said[:CONFIRMED]) + more
    return right
