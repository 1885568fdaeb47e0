"""The plan as it went: every step, every status change, every directive, every write, in the order of time."""

import time
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from uncork.model.plan import Plan, PlannedChange, Shown, Step
from uncork.record.report.markup import Html, fold, items, section, table, tag, text
from uncork.record.report.story import Story
from uncork.record.report.verdict import badge

MARKS = {
    Shown.COMPLETED: "✓",
    Shown.IN_PROGRESS: "▶",
    Shown.FAILED: "✗",
    Shown.REVERTED: "↩",
    Shown.SKIPPED: "–",
    Shown.CANCELLED: "–",
    Shown.BLOCKED: "■",
    Shown.INTERRUPTED: "✗",
    Shown.UNCONFIRMED: "?",
    Shown.DRIFTED: "≠",
}


def timeline(story: Story) -> Html:
    """The plan's part of the page."""
    plan = story.plan
    if plan is None:
        return Html("")
    asked = [(clock(one.wall_ns), one.by, one.op, one.target, text(one.words, 300), text(one.outcome, 200))
             for one in plan.directives]  # fmt: skip
    rows = [
        (clock(at), who, what, text(said, 300)) for at, who, what, said in sorted(events(plan, story.rows))
    ]
    body = [
        tag("p", f"Plan {plan.id}, revision {plan.revision}: {plan.state}."),
        table("Steps", ("step", "status", "began", "took", "evidence or reason"), map(_step, plan.steps)),
        table("What people asked for", ("at", "by", "directive", "step", "in their words", "outcome"), asked),
        fold("Everything that happened, in order", table("", ("at", "who", "what", "said"), rows)),
        fold(
            f"{len(plan.deferred)} findings that this plan leaves alone",
            items(f"{one.priority.value} {one.says} ({one.finding}): {one.why}" for one in plan.deferred),
        ),
    ]
    return section("timeline", "What was done, when", *body)


def clock(wall_ns: int) -> str:
    """Local time of day with its date."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(wall_ns / 1e9))


def _step(step: Step) -> tuple[str, ...]:
    said = step.detail or step.reason or (step.evidence[-1].summary if step.evidence else "")
    took = f"{(step.ended_ns - step.started_ns) / 1e9:,.1f} s" if step.started_ns and step.ended_ns else ""
    began = time.strftime("%H:%M:%S", time.localtime(step.started_ns / 1e9)) if step.started_ns else ""
    mark = f"{MARKS.get(step.shown, '·')} {step.shown.value.replace('_', ' ')}"
    return (
        text(step.title),
        tag("span", mark, class_=f"mark {step.shown.value}"),
        began,
        took,
        text(said, 300),
    )


def events(plan: Plan, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[int, str, str, str]]:
    """Time, who, what and their words; starts and ends are of the newest attempt, evidence is of every one."""
    yield plan.created_ns, "uncork", "plan begun", plan.id
    for step in plan.steps:
        if step.started_ns:
            again = f" (attempt {step.attempt})" if step.attempt > 1 else ""
            yield step.started_ns, "uncork", f"started{again}", step.title
        for one in step.evidence:
            yield one.wall_ns, "uncork", f"evidence: {one.verdict}", f"{step.title}: {one.summary}"
        if step.ended_ns:
            why = f": {step.reason}" if step.reason else ""
            yield step.ended_ns, "uncork", step.status.value, f"{step.title}{why}"
    for approval in plan.approvals:
        voided = f"; voided: {approval.voided}" if approval.voided else ""
        yield approval.wall_ns, approval.by, "approved", f"{approval.digest[:16]}, {approval.how}{voided}"
    for asked in plan.directives:
        yield asked.wall_ns, asked.by, asked.op, f"{asked.target} {asked.words} ({asked.outcome})".strip()
    for row in rows:
        yield _journalled(row)


def _journalled(row: dict[str, Any]) -> tuple[int, str, str, str]:
    actor = row.get("actor") or {}
    who = str(actor.get("name") or actor.get("sudo_user") or actor.get("kind") or "uncork")
    target, why = str(row.get("target", "")), str(row.get("why") or row.get("says") or "")
    moved = f"{row.get('before')} → {row.get('want')}" if "want" in row else ""
    said = " ".join(filter(None, (target, moved, why)))
    return int(row["wall_ns"]), who, f"journal {row['seq']}: {row['kind']}", said


def changes(story: Story) -> Html:
    """Exact values before and after, with the command that undoes each."""
    groups = [step for step in story.plan.steps if step.changes] if story.plan else []
    if not groups:
        return Html("")
    body = []
    for step in groups:
        rows = list(_alike(step.changes))
        head = ("target", "knob", "before", "after", "risk", "also set by")
        shown, rest = rows[:_SHOWN], rows[_SHOWN:]
        undo = [how for one in step.changes if (how := story.undo.get(f"{one.knob}:{one.target}"))]
        body += [
            tag("h3", badge(step.shown.value), text(step.title)),
            tag("p", text(step.why)) if step.why else Html(""),
            tag("p", text(step.reason or step.detail), class_="note")
            if step.reason or step.detail
            else Html(""),
            table("", head, shown),
            fold(f"{len(rest)} more targets", table("", head, rest)) if rest else Html(""),
            fold("Undo by hand (uncork rollback does this)", _commands(undo)) if undo else Html(""),
        ]
    return section("changes", "Changes", *body)


_SHOWN = 8


def _alike(changes: Iterable[PlannedChange]) -> Iterator[tuple[str, ...]]:
    """A row a change; more than three neighbours that change alike are one row."""
    for key, group in groupby(
        changes, key=lambda one: (one.knob, one.before, one.want, one.risk, one.owners)
    ):
        knob, before, want, risk, owners = key
        targets = [one.target for one in group]
        if len(targets) > 3:
            targets = [f"{targets[0]} … {targets[-1]} ({len(targets)} targets)"]
        for target in targets:
            values = ("(not readable)" if before is None else before, want)
            yield (
                tag("code", target),
                tag("code", knob),
                *(tag("code", value) for value in values),
                risk,
                ", ".join(owners) or "nobody",
            )


def _commands(lines: Iterable[str]) -> Html:
    return tag("pre", Html("\n".join(text(line, 4000) for line in lines)), tabindex=0)
