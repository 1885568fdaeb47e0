"""What a person takes away in one minute: what was wrong, what was changed, whether it helped, how to undo it."""

from collections.abc import Iterable

from uncork.model.findings import Answer, Audit, Priority, Result
from uncork.model.gate import GateResult
from uncork.model.plan import Kind, Plan, PlannedChange, Status, in_force
from uncork.record.report.markup import Html, join, section, tag, text
from uncork.record.report.series import against, output_tok_s, points_of
from uncork.record.report.story import Story


def verdict(story: Story) -> Html:
    """The first part of the page."""
    said = [
        ("Wrong", wrong(story.audit)),
        ("Changed", changed(story.plan)),
        ("Helped", helped(story)),
        ("Data paths", paths(story)),
        ("Undo", undo(story.plan)),
    ]
    listed = tag("dl", *(tag("dt", name) + tag("dd", line) for name, line in said))
    return section("verdict", "In one minute", tag("div", listed, class_="verdict"), tiles(story))


def failing(audit: Audit | None) -> tuple[Result, ...]:
    """What was found wrong, the weightiest first."""
    return tuple(one for one in audit.results if one.answer is Answer.FAIL) if audit else ()


def wrong(audit: Audit | None) -> str:
    """How much was found, and the first of it."""
    if audit is None:
        return "This host was not audited in this run."
    found = failing(audit)
    counts = ", ".join(
        f"{len({one.id for one in found if one.priority is p})} {p.value}"
        for p in (Priority.P0, Priority.P1, Priority.P2)
    )
    first = next((one for one in found if one.priority is not Priority.INFO), None)
    unread = sum(one.answer is Answer.UNKNOWN for one in audit.results)
    more = f" {unread} questions had no answer." if unread else ""
    return f"{counts}." + (f" First: {first.says}." if first else " Nothing was found wrong.") + more


def changed(plan: Plan | None) -> str:
    """What stands changed, and what became of the other groups."""
    if plan is None:
        return "Nothing: no plan belongs to this run."
    kept = {_target(change) for _, change in in_force(plan)}
    other: dict[str, set[tuple[str, str]]] = {}
    for step in plan.steps:
        if step.kind is Kind.APPLY and step.status is not Status.COMPLETED:
            # A group that an attribution put back for a while is still one that stands.
            other.setdefault(step.shown.value, set()).update({_target(c) for c in step.changes} - kept)
    rest = ", ".join(f"{len(targets)} {name}" for name, targets in other.items() if targets)
    said = f"{len(kept)} values, until the next reboot" if kept else "Nothing is in force"
    later = f" {len(plan.deferred)} findings need more than a change at runtime." if plan.deferred else ""
    return f"{said}{f' (planned: {rest})' if rest else ''}.{later}"


def _target(change: PlannedChange) -> tuple[str, str]:
    return change.knob, change.target


def helped(story: Story) -> str:
    """What the comparison supports, no more."""
    if story.comparison is None:
        return "Not known: there is no second run to compare with."
    return story.comparison.says[:1].upper() + story.comparison.says[1:]


def paths(story: Story) -> str:
    """The gate's words."""
    gate = story.gate_after or story.gate_before
    return f"{gate.verdict.value} — {gate.tested}" if gate else "Not verified in this run."


def undo(plan: Plan | None) -> str:
    """The command that puts everything back."""
    if not in_force(plan):
        return "There is nothing to undo."
    return "uncork rollback puts every value back; each has its own command under Changes."


def tiles(story: Story) -> Html:
    """The figures that people ask for first."""
    made = [*_speed(story), *_share(story), *_gate(story.gate_after or story.gate_before)]
    for priority in (Priority.P0, Priority.P1) if story.audit else ():
        count = len({one.id for one in failing(story.audit) if one.priority is priority})
        made.append((str(count), f"{priority.value} findings"))
    return tag("div", *(tag("div", tag("b", big), tag("span", small), class_="tile") for big, small in made),
               class_="tiles")  # fmt: skip


def _speed(story: Story) -> Iterable[tuple[str, str]]:
    tops = {}
    for name, run in (("before", story.before), ("after", story.after)):
        points = points_of(run, output_tok_s) if run else ()
        if points:
            top = max(points, key=lambda point: point.y)
            tops[name] = top
    if not tops:
        return
    shown = " → ".join(f"{top.y:,.0f}" if top.y >= 100 else f"{top.y:.1f}" for top in tops.values())
    at = ", then ".join(dict.fromkeys(f"{top.x} at once" for top in tops.values()))
    yield shown, f"output tokens/s at its best level ({at})" + (", before → after" if len(tops) > 1 else "")


def _share(story: Story) -> Iterable[tuple[str, str]]:
    first = [rows[0] for run in (story.before, story.after) if (rows := against(story, run))]
    if first:
        shown = " → ".join(f"{row.efficiency.silicon[0]:.0%}" for row in first)
        yield shown, f"of the silicon tier at {first[-1].measured.concurrency} at once"


def _gate(gate: GateResult | None) -> Iterable[tuple[str, str]]:
    if gate is not None:
        kind = " (a simulation)" if gate.simulated else ""
        yield gate.verdict.value, f"{len(gate.criteria)} criteria over {len(gate.devices)} devices{kind}"


def badge(word: str) -> Html:
    """A word in a box; its colour repeats what it says."""
    return tag("span", word, class_=f"badge {word if word.isidentifier() else ''}")


def provenance(story: Story) -> Html:
    """Which run this is, on which host, told by which program."""
    lines = []
    if story.plan:
        lines.append(f"Plan {story.plan.id}, revision {story.plan.revision}, {story.plan.state}")
    if story.audit:
        lines.append(f"uncork {story.audit.version}")
    run = story.after or story.before
    if run:
        lines.append(f"server: {run.model} at {', '.join(run.endpoints)}")
    return join(tag("p", text(line)) for line in lines)
