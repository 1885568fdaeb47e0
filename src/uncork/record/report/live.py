"""What stands above a report while its run goes on: the phase, how much is done, the list of what is left."""

from uncork.model.bench import BenchRun
from uncork.model.plan import Plan, Shown, Step
from uncork.record.report.markup import Html, items, section, tag, text
from uncork.record.report.story import Story
from uncork.record.report.timeline import MARKS

_DONE = (Shown.COMPLETED, Shown.SKIPPED, Shown.CANCELLED, Shown.REVERTED, Shown.FAILED)


def now(story: Story) -> Html:
    """The live part; `connection` is where the page says whether it still moves."""
    plan = story.plan
    if plan is None:
        return Html("")
    done = sum(step.shown in _DONE for step in plan.steps)
    total = len(plan.steps)
    body = [
        tag("p", tag("b", current(plan)), text(_levels(story))),
        tag("progress", f"{done} of {total} steps", value=done, max=max(1, total), aria_label="Steps done"),
        tag("span", f" {done} of {total} steps, the plan is {plan.state}; "),
        tag("span", "live", id="connection", role="status"),
        items((_line(step) for step in plan.steps), class_="todo"),
    ]
    return section("live", "Now", *body)


def current(plan: Plan) -> str:
    """The step that runs, or what the plan waits for."""
    for shown, words in (
        (Shown.IN_PROGRESS, "Running"),
        (Shown.READY, "Next"),
        (Shown.INTERRUPTED, "Interrupted"),
    ):
        for step in plan.steps:
            if step.shown is shown:
                return f"{words}: {step.title}"
    return "Everything has ended." if plan.state in ("closed", "aborted") else f"The plan is {plan.state}."


def _levels(story: Story) -> str:
    """How far a benchmark is that has not ended."""
    for when, run in (("after", story.after), ("before", story.before)):
        if run is not None and not run.finished:
            return f" ({when}: {len(run.levels)} of {_planned(run)} levels measured)"
    return ""


def _planned(run: BenchRun) -> str:
    levels, repeats = run.spec.get("levels"), run.spec.get("repeats")
    known = isinstance(levels, (list, tuple)) and isinstance(repeats, int)
    return str(len(levels) * repeats) if known and levels and repeats else "?"


def _line(step: Step) -> Html:
    why = step.detail or step.reason
    said = f"{MARKS.get(step.shown, '·')} {step.title} — {step.shown.value.replace('_', ' ')}"
    return text(f"{said}: {why}" if why else said, 240)
