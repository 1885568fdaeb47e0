"""The plan of record: steps, the changes they make, evidence, directives, approvals and holds."""

from enum import StrEnum

import msgspec

from uncork.model.findings import ChangeClass, Priority


class Status(StrEnum):
    """What the store keeps about a step; only the engine writes it."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    REVERTED = "reverted"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


class Shown(StrEnum):
    """What a person sees: a stored status, or one derived from it while reading."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    REVERTED = "reverted"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    READY = "ready"  # pending, and all it needs is there
    BLOCKED = "blocked"  # pending, and something it needs ended without success
    INTERRUPTED = "interrupted"  # in_progress, and the process that held it is gone
    UNCONFIRMED = "unconfirmed"  # applied, and its hold is still open
    DRIFTED = "drifted"  # confirmed once, but the host has rebooted or someone changed the value


class Kind(StrEnum):
    """What a step does; the schema's table `kind` says which may be skipped, retried, or writes the host."""

    EXPLORE = "explore"
    RANK = "rank"
    DOCUMENT = "document"
    APPROVE = "approve"
    APPLY = "apply"
    GATE = "gate"
    CONFIRM = "confirm"
    BENCHMARK = "benchmark"
    COMPARE = "compare"
    DECIDE = "decide"
    CLOSE = "close"


class PlannedChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """One write of a step: a knob's target, from `before` (None: nothing could be read) to `want`."""

    knob: str
    target: str
    want: str
    before: str | None = None
    risk: str = ""
    scope: str = ""
    owners: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


class Deferred(msgspec.Struct, frozen=True):
    """A finding that this plan does not cure, and what it would take."""

    finding: str
    subject: str
    says: str
    priority: Priority
    change_class: ChangeClass = msgspec.field(name="class")
    why: str
    fix: str = ""


class Need(msgspec.Struct, frozen=True):
    """A step that must come first: `completed` (or skipped), or merely `ended` whichever way."""

    step: str
    condition: str = "completed"


class StepDraft(msgspec.Struct, frozen=True):
    """A step before it is stored; `needs` names earlier steps."""

    name: str
    kind: Kind
    title: str
    why: str = ""
    priority: Priority = Priority.INFO
    needs: tuple[Need, ...] = ()
    changes: tuple[PlannedChange, ...] = ()
    policy: str = "all_or_nothing"
    redo_of: str | None = None


class PlanDraft(msgspec.Struct, frozen=True):
    """A plan before it is stored."""

    host: str
    steps: tuple[StepDraft, ...]
    deferred: tuple[Deferred, ...] = ()


class StepEvidence(msgspec.Struct, frozen=True):
    """What a step produced: a verdict (pass, fail, inconclusive), one line, and where the whole of it is."""

    verdict: str
    summary: str
    artefact: str
    attempt: int
    wall_ns: int


class Step(msgspec.Struct, frozen=True):
    """A stored step as it was read, with what is derived from it in `shown` and `detail`."""

    id: int
    name: str
    position: int
    kind: Kind
    title: str
    why: str
    priority: Priority
    status: Status
    shown: Shown
    detail: str
    reason: str
    attempt: int
    policy: str
    needs: tuple[Need, ...]
    changes: tuple[PlannedChange, ...]
    digest: str
    evidence: tuple[StepEvidence, ...]
    redo_of: str | None
    started_ns: int | None
    ended_ns: int | None
    # Targets that kept their former value: a best-effort group goes on without them.
    not_taken: tuple[str, ...] = ()


class Hold(msgspec.Struct, frozen=True):
    """One applied group: its transaction, until when it reverts by itself, and how it stands."""

    txn: str
    step: int
    state: str  # open, confirmed, undoing, undone, undo_failed, lost_at_reboot, stuck
    boot_id: str
    deadline_boot_ns: int
    guard: str


class Approval(msgspec.Struct, frozen=True):
    """Consent to exact changes: `digest` covers targets, before-values and wanted values."""

    id: int
    digest: str
    by: str
    how: str
    wall_ns: int
    voided: str | None
    used: tuple[str, ...]
    unused: dict[str, str]  # step → digest of its changes, as approved


class Directive(msgspec.Struct, frozen=True):
    """What a person (or an assistant) asked for, in their own words, and what came of it."""

    seq: int
    op: str
    target: str
    words: str
    by: str
    base_revision: int
    outcome: str
    wall_ns: int


class Plan(msgspec.Struct, frozen=True):
    """The whole plan as one consistent read of the store."""

    id: str
    host: str
    revision: int
    state: str  # active, paused, frozen, closed, aborted
    steps: tuple[Step, ...]
    deferred: tuple[Deferred, ...]
    digest: str
    record_sha256: str | None
    approvals: tuple[Approval, ...]
    holds: tuple[Hold, ...]
    directives: tuple[Directive, ...]
    created_ns: int


def in_force(plan: Plan | None) -> tuple[tuple[Step, PlannedChange], ...]:
    """Every change that was made and stands, with its step; without a plan none."""
    return tuple(
        (step, change)
        for step in (plan.steps if plan else ())
        if step.kind is Kind.APPLY and step.status is Status.COMPLETED
        for change in step.changes
        if change.target not in step.not_taken
    )


class Todo(msgspec.Struct, frozen=True):
    """One line of the list that coding assistants show."""

    content: str
    status: str
    priority: str
