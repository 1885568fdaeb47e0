"""The plan in five lines: carried by every result, so that a compacted conversation loses nothing."""

from collections import Counter

from uncork.errors import NotFound
from uncork.model.plan import Plan, PlannedChange, Shown, Step
from uncork.plan.store import Store

NO_PLAN = "There is no plan on this host yet. Next: audit_start (looks), then plan_draft (makes a plan)."


def digest(store: Store) -> str:
    """Five lines about the open (or latest) plan, or one that says there is none."""
    try:
        return lines_of(store.read())
    except NotFound:
        return NO_PLAN


def lines_of(plan: Plan) -> str:
    """The five lines: which plan, what runs, how far, what is held or waits, what to call next."""
    counts = Counter(step.status.value for step in plan.steps)
    return "\n".join(
        [
            f"Plan {plan.id} of {plan.host}, revision {plan.revision}, {plan.state}.",
            f"Now: {_now(plan)}",
            "Steps: " + ", ".join(f"{count} {name}" for name, count in counts.items()) + ".",
            _held(plan),
            f"Next: {'; '.join(next_calls(plan))}.",
        ]
    )


def ready(plan: Plan) -> Step | None:
    """The step that may start now, None where none may."""
    return next((step for step in plan.steps if step.shown is Shown.READY), None)


def next_calls(plan: Plan) -> list[str]:
    """The calls that would be accepted now."""
    if plan.state == "paused":
        return ["plan_redirect(op='resume')", "plan_redirect(op='abort')"]
    if plan.state not in ("active", "frozen"):
        return ["compare_show", "record_read", "plan_draft (a new plan)"]
    if any(step.shown is Shown.IN_PROGRESS for step in plan.steps):
        return ["plan_wait", "plan_redirect(op='pause' or 'abort')"]
    step = ready(plan)
    calls = [f"step_start(step='{step.name}', expected_revision={plan.revision})"] if step else []
    if step and step.name == "approve" and any(change.risk == "high" for change in _changes(plan)):
        calls = [f"a person runs `uncork approve {plan.digest[:8]}`, then {calls[0]}"]
    return [*calls, "plan_redirect"]


def _changes(plan: Plan) -> list[PlannedChange]:
    return [change for step in plan.steps for change in step.changes]


def _now(plan: Plan) -> str:
    running = [step for step in plan.steps if step.shown is Shown.IN_PROGRESS]
    if running:
        return f"{running[0].name} runs: {running[0].title}."
    step = ready(plan)
    return (
        f"nothing runs; {step.name} is ready: {step.title}." if step else "nothing runs and nothing is ready."
    )


def _held(plan: Plan) -> str:
    held = [step for step in plan.steps if step.shown is Shown.UNCONFIRMED]
    if held:
        return "Held: " + ", ".join(f"{step.name} ({step.detail})" for step in held) + "."
    waiting = sum(len(step.changes) for step in plan.steps if step.status == "pending")
    return f"Held: nothing. {waiting} values wait to be written (digest {plan.digest[:8]})."
