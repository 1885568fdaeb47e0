"""The plan in the four words of coding assistants' todo lists: a projection, never read back."""

from uncork.model.findings import Priority
from uncork.model.plan import Plan, Shown, Status, Step, Todo

_WORDS = {
    Status.PENDING: "pending",
    Status.IN_PROGRESS: "in_progress",
    Status.COMPLETED: "completed",
    Status.FAILED: "pending",
    Status.REVERTED: "cancelled",
    Status.SKIPPED: "cancelled",
    Status.CANCELLED: "cancelled",
}
_PRIORITY = {Priority.P0: "high", Priority.P1: "high", Priority.P2: "medium", Priority.INFO: "low"}


def todo(plan: Plan) -> tuple[Todo, ...]:
    """One line a step; blocked, failed and interrupted ones say so in front of their title."""
    return tuple(Todo(_content(step), _WORDS[step.status], _PRIORITY[step.priority]) for step in plan.steps)


def _content(step: Step) -> str:
    if step.shown in (Shown.BLOCKED, Shown.FAILED, Shown.INTERRUPTED, Shown.UNCONFIRMED, Shown.DRIFTED):
        return f"{step.shown}: {step.title}"
    if step.status in (Status.SKIPPED, Status.REVERTED):
        return f"{step.status}: {step.title}"
    return step.title
