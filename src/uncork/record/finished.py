"""The finished part: what was done, what it was worth, and what is still owed."""

import time
from collections.abc import Iterable

import msgspec

from uncork.bench.compare import interval_words
from uncork.model.comparison import Comparison, Difference
from uncork.model.gate import GateResult
from uncork.model.plan import Kind, Plan, Step, in_force
from uncork.record.markdown import code, fold, plain, table


class After(msgspec.Struct, frozen=True):
    """Everything that is known at the end."""

    plan: Plan
    gate: GateResult | None
    comparison: Comparison | None
    written_at: str


def finished_text(known: After) -> str:
    """The finished part as Markdown."""
    lines = [f"# What was done ({known.written_at})", "", *_decision(known), *_log(known.plan.steps)]
    lines += _approvals(known.plan)
    lines += _gate(known.gate)
    lines += _comparison(known.comparison)
    lines += _lasting(known.plan)
    lines += _directives(known.plan)
    lines += _proof(known.plan)
    return "\n".join(lines)


def _decision(known: After) -> list[str]:
    decide = [step for step in known.plan.steps if step.kind is Kind.DECIDE and step.evidence]
    said = plain(decide[-1].evidence[-1].summary) if decide else "no change was made, so none was judged"
    return ["## Decision", "", said[:1].upper() + said[1:] + ".", ""]


def _log(steps: Iterable[Step]) -> list[str]:
    rows = []
    for step in steps:
        said = step.evidence[-1].summary if step.evidence else step.reason
        times = (step.started_ns, step.ended_ns)
        took = f"{(times[1] - times[0]) / 1e9:.1f} s" if times[0] and times[1] else ""
        at = time.strftime("%H:%M:%S", time.localtime(times[0] / 1e9)) if times[0] else ""
        rows.append([at, plain(step.title), step.status.value, took, plain(said, 200)])
    return ["## Log", "", *table(("at", "step", "status", "took", "evidence or reason"), rows)]


def _approvals(plan: Plan) -> list[str]:
    rows = (
        [plain(one.by), code(one.digest[:16]), plain(one.how), plain(one.voided or "stands")]
        for one in plan.approvals
    )
    body = table(("by", "digest", "how", "state"), rows)
    return ["## Who approved what", "", *(body or ["Nothing was approved, so nothing was written.", ""])]


def _proof(plan: Plan) -> list[str]:
    return [
        "## How to check this record",
        "",
        f"- The part above the line is as it was sealed: `uncork record verify {plan.id}`",
        "- The journal is whole and agrees with the head below: `uncork journal verify`",
        f"- The same as one page with its curves: `uncork report {plan.id}`",
        "",
    ]


def _gate(gate: GateResult | None) -> list[str]:
    if gate is None:
        return ["## Gate afterwards", "", "It was not run.", ""]
    rows = (
        [one.criterion.value, one.verdict.value if one.applies else "does not apply", plain(one.says)]
        for one in gate.criteria
    )
    head = f"{gate.verdict.value}: {plain(gate.tested)}"
    return ["## Gate afterwards", "", head, "", *table(("criterion", "verdict", "what was measured"), rows)]


def _comparison(comparison: Comparison | None) -> list[str]:
    lines = ["## Before and after", ""]
    if comparison is None:
        return [*lines, "There is no second run to compare with.", ""]
    lines += [f"**{plain(comparison.says)}**", ""]
    head = ("level", "metric", "before", "after", "change", "interval", "repeats", "verdict")
    lines += table(head, (_row(one) for one in comparison.overall))
    lines += fold("Level by level", table(head, (_row(one) for one in comparison.levels)))
    lines += [f"- Differs and was not under test: {plain(text)}" for text in comparison.differs]
    lines += [f"- Under test: {plain(text)}" for text in comparison.tested]
    lines += [f"- {plain(text)}" for text in comparison.notes]
    return [*lines, ""]


def _row(one: Difference) -> list[str]:
    return [
        one.level or "all",
        one.metric,
        f"{one.before:.2f} {one.unit}",
        f"{one.after:.2f} {one.unit}",
        f"{one.ratio - 1:+.1%}",
        interval_words(one),
        f"{one.n_before}/{one.n_after}",
        one.judgement.value,
    ]


def _lasting(plan: Plan) -> list[str]:
    lines = ["## What lasts, and what a reboot loses", ""]
    kept = {hold.step for hold in plan.holds if hold.state == "confirmed"}
    changes = [change for step, change in in_force(plan) if step.id in kept]
    if not changes:
        lines += ["Nothing is in force that was not so before.", ""]
    else:
        rows = ([code(c.knob), code(c.target), code(c.before or ""), code(c.want)] for c in changes)
        lines += [
            "In force until the next reboot; `uncork persist` makes them last, `uncork rollback` undoes them.",
            "",
        ]
        lines += table(("knob", "target", "was", "is"), rows)
    owed = [
        f"- {one.priority.value} {code(one.finding)} {plain(one.says)}: {plain(one.why)}"
        for one in plan.deferred
    ]
    return [*lines, *fold(f"Still owed: {len(owed)} findings that need more than a runtime change", owed)]


def _directives(plan: Plan) -> list[str]:
    rows = ([code(one.op), plain(one.by), plain(one.words), plain(one.outcome)] for one in plan.directives)
    body = table(("directive", "by", "in their words", "outcome"), rows)
    return ["## What people asked for meanwhile", "", *body] if body else []
