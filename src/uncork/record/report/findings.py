"""What was found, with its evidence folded; what could not be read; what was confirmed right."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from uncork.checks import Check, load
from uncork.model.findings import Answer, Audit, Change, Evidence, Priority, Result
from uncork.record.report.markup import Html, fold, items, join, section, table, tag, text
from uncork.record.report.verdict import badge, failing

SHOWN_SUBJECTS = 16
SHOWN_EVIDENCE = 5
ALIKE = 3  # more targets than this that change alike are one row
_WEIGHTY = (Priority.P0, Priority.P1)


def findings(audit: Audit | None) -> Html:
    """The findings' part of the page."""
    if audit is None:
        return Html("")
    known = load()
    groups = [list(found) for _, found in groupby(failing(audit), key=lambda one: (one.priority, one.id))]
    weighty = [group for group in groups if group[0].priority in _WEIGHTY]
    small = [group for group in groups if group[0].priority not in _WEIGHTY]
    body = [_finding(group, known.get(group[0].id)) for group in weighty]
    if not weighty:
        body.append(tag("p", "Nothing of weight (P0, P1) was found wrong among what could be read."))
    body.append(
        fold(
            f"{len(small)} small or conditional (P2, info)",
            *(_finding(group, known.get(group[0].id)) for group in small),
        )
    )
    return section("findings", "What was found", *body, _unread(audit), _right(audit))


def _finding(group: Sequence[Result], check: Check | None) -> Html:
    first = group[0]
    subjects = [one.subject for one in group if one.subject]
    where = f"({subjects[0]})" if len(subjects) == 1 else f"({len(subjects)} times)" if subjects else ""
    summary = badge(first.priority.value) + text(first.says, 200) + Html(" ") + text(where)
    facts = [("check", first.id), ("cure", first.change_class.value)]
    if check is not None:
        facts += [
            (f"effect, {check.confidence.value} confidence", check.effect),
            ("source", check.source),
            ("fix", check.fix),
        ]
    body = [items(tag("b", f"{name}: ") + text(said) for name, said in facts if said)]
    body.append(_subjects(group) if len(group) > 1 else Html(""))
    body.append(_evidence(item for one in group for item in one.evidence))
    body.append(_changes([change for one in group for change in one.changes]))
    return fold(summary, *body, class_="paper" if first.priority in _WEIGHTY else "")


def _subjects(group: Sequence[Result]) -> Html:
    """Who is concerned: subjects that are said the same of stand on one line."""
    by_words: dict[str, list[str]] = {}
    for one in group:
        by_words.setdefault(one.says, []).append(one.subject)
    lines = [
        f"{', '.join(filter(None, subjects)) or 'this host'}: {says}" for says, subjects in by_words.items()
    ]
    return join([items(lines[:SHOWN_SUBJECTS]), _more(len(lines) - SHOWN_SUBJECTS)])


def _evidence(found: Iterable[Evidence]) -> Html:
    seen = list(dict.fromkeys((item.source, item.text) for item in found))
    lines: Iterator[Html] = (
        tag("code", text(said, 2000)) + " in " + tag("code", source) for source, said in seen
    )
    shown = [line for line, _ in zip(lines, range(SHOWN_EVIDENCE), strict=False)]
    if not shown:
        return Html("")
    return join([tag("p", "What was read:"), items(shown, "evidence"), _more(len(seen) - SHOWN_EVIDENCE)])


def _changes(changes: Sequence[Change]) -> Html:
    rows = []
    for (knob, before, want), group in groupby(changes, key=lambda one: (one.knob, one.before, one.want)):
        targets = [one.target for one in group]
        if len(targets) > ALIKE:
            targets = [f"{targets[0]} … {targets[-1]} ({len(targets)} targets)"]
        rows += [
            (tag("code", target), tag("code", knob), tag("code", before or "?"), tag("code", want))
            for target in targets
        ]
    shown = table("The change that would cure it", ("target", "knob", "now", "wanted"), rows[:SHOWN_SUBJECTS])
    return join([shown, _more(len(rows) - SHOWN_SUBJECTS)])


def _more(count: int) -> Html:
    return tag("p", f"and {count} more, in audit.json", class_="note") if count > 0 else Html("")


def _unread(audit: Audit) -> Html:
    missing = [one for one in audit.results if one.answer is Answer.UNKNOWN]
    reasons: dict[str, list[str]] = {}
    for one in missing:
        reasons.setdefault(one.reason, []).append(one.id)
    rows = [
        (text(why, 300), str(len(ids)), text(", ".join(dict.fromkeys(ids)), 300))
        for why, ids in sorted(reasons.items(), key=lambda pair: -len(pair[1]))
    ]
    broken = items(
        f"The {name} explorer gave nothing: {why}" for name, why in audit.explorers.items() if why != "ok"
    )
    listed = table("What could not be read, and why", ("why", "questions", "checks"), rows, numbers=(1,))
    return broken + fold(f"{len(missing)} questions without an answer", listed)


def _right(audit: Audit) -> Html:
    rows = [(name.replace("_", " "), text(said)) for name, said in audit.right.items()]
    return fold("Confirmed right", table("What need not be chased", ("dimension", "right"), rows))
