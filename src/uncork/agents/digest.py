"""The plan in five lines: carried by every result, so that a compacted conversation loses nothing."""

from collections import Counter

from uncork.errors import NotFound
from uncork.model.plan import Plan, Shown, Status, Step
from uncork.plan.approvals import approved
from uncork.plan.fold import fold
from uncork.plan.reading import to_approve
from uncork.plan.store import Store
from uncork.record.markdown import one_line

LINE_CHARS = 300
ASKED_LINES = 40  # more than a person reads in a question
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
    lines = (
        f"Plan {plan.id} of {plan.host}, revision {plan.revision}, {plan.state}.",
        f"Now: {_now(plan)}",
        "Steps: " + ", ".join(f"{count} {name}" for name, count in counts.items()) + ".",
        _held(plan),
        f"Next: {'; '.join(next_calls(plan))}.",
    )
    return "\n".join(one_line(line, LINE_CHARS) for line in lines)


def ready(plan: Plan) -> Step | None:
    """The step that may start now, None where none may."""
    return next((step for step in plan.steps if step.shown is Shown.READY), None)


def runs(step: Step) -> bool:
    """Whether the step has not ended; a group is held from its first write on, so a held one may still run."""
    held = step.status is Status.IN_PROGRESS and step.shown is Shown.UNCONFIRMED
    return held or step.shown is Shown.IN_PROGRESS


def next_calls(plan: Plan) -> list[str]:
    """The calls that would be accepted now."""
    if plan.state == "paused":
        return ["plan_redirect(op='resume')", "plan_redirect(op='abort')"]
    if plan.state not in ("active", "frozen"):
        return ["compare_show", "record_read", "plan_draft (a new plan)"]
    if any(runs(step) for step in plan.steps):
        return ["plan_wait", "plan_redirect(op='pause' or 'abort')"]
    step = ready(plan)
    if not step:
        return ["plan_redirect"]
    which = f", digest='{plan.digest[:8]}'" if step.name == "approve" else ""
    call = f"step_start(step='{step.name}', expected_revision={plan.revision}{which})"
    if step.name == "approve" and at_terminal(plan) and not approved(plan):
        call = f"a person runs `uncork approve {plan.digest[:8]}` at a terminal, then {call}"
    return [call, "plan_redirect"]


def names(plan: Plan, digest: str) -> bool:
    """Whether `digest` (8 or more hex) is that of the changes as they stand now."""
    return len(digest) >= 8 and plan.digest.startswith(digest.lower())


def at_terminal(plan: Plan) -> bool:
    """Whether consent needs `uncork approve`: a change of high risk, or more lines than one question can show."""
    risky = any(change.risk == "high" for step in to_approve(plan.steps) for change in step.changes)
    return risky or len(asked(plan)) > ASKED_LINES


def asked(plan: Plan) -> list[str]:
    """What would be written, one line each, safe to show."""
    return [f"  {one_line(line)}" for step in to_approve(plan.steps) for line in fold(step.changes)]


def _now(plan: Plan) -> str:
    running = [step for step in plan.steps if runs(step)]
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
    pending = [step for step in plan.steps if step.status == "pending"]
    waiting = len({(change.knob, change.target) for step in pending for change in step.changes})
    values = "1 value waits" if waiting == 1 else f"{waiting} values wait"
    return f"Held: nothing. {values} to be written (digest {plan.digest[:8]})."


def notes(plan: Plan) -> list[str]:
    """What was written into the todo list beside the steps, oldest first."""
    return [one.words for one in plan.directives if one.op == "note"]
