"""What a person asks of a running plan, in their own words: nine verbs and notes, applied at safe points.

Each is stored with the words, who said them and the revision they had seen, also where it is refused. Nothing
new starts in a paused or aborted plan, so the safe point is the end of what is running; a transaction in the
middle of a group asks `asked_to_stop` between two changes, never between an intent and its read-back.
"""

import time
from collections.abc import Callable, Mapping

import msgspec

from uncork.errors import IllegalMove, NotFound, StaleRevision, UncorkError
from uncork.model.plan import Kind, Plan, PlannedChange, Status, Step, StepDraft
from uncork.plan.digest import step_digest
from uncork.plan.store import Store, add_step, find


def give(
    store: Store,
    plan: Plan,
    op: str,
    act: Callable[[Plan], str],
    *,
    words: str,
    by: str,
    target: str = "",
    expected_revision: int | None = None,
) -> Plan:
    """Do one directive and keep its words; the plan as it is afterwards.

    `act` makes the change inside the transaction and says what came of it. Raises `StaleRevision` where the
    plan has a newer revision than `expected_revision` (the caller's), and whatever `act` refuses with; the
    refusal is stored too.
    """
    base = plan.revision if expected_revision is None else expected_revision
    row = (plan.id, op, target, words, by, base)
    try:
        with store.writing() as db:
            now = store.read(plan.id)
            if now.revision != base:
                raise StaleRevision(
                    f"The plan is at revision {now.revision}, you saw {base}; nothing was changed.",
                    next="uncork plan (shows it as it is now), then say it again",
                )
            outcome = act(now)
            db.execute("UPDATE plan SET revision = revision + 1 WHERE id = ?", (plan.id,))
            db.execute(_INSERT, (*row, outcome, time.time_ns()))
    except UncorkError as refused:
        with store.writing() as db:
            db.execute(_INSERT, (*row, f"refused: {refused.says}", time.time_ns()))
        raise
    return store.read(plan.id)


_INSERT = (
    "INSERT INTO directive(plan, op, target, words, by, base_revision, outcome, wall_ns)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def pause(store: Store, plan: Plan, *, words: str, by: str, expected_revision: int | None = None) -> Plan:
    """Start nothing more; what runs ends first, and an open hold keeps its deadline."""

    def act(now: Plan) -> str:
        if now.state != "active":
            raise IllegalMove(f"The plan is {now.state}, not active.", next=_state_next(now))
        store.db.execute("UPDATE plan SET state = 'paused' WHERE id = ?", (now.id,))
        return "paused"

    return give(store, plan, "pause", act, words=words, by=by, expected_revision=expected_revision)


def resume(store: Store, plan: Plan, *, words: str, by: str, expected_revision: int | None = None) -> Plan:
    """Let a paused or frozen plan go on."""

    def act(now: Plan) -> str:
        if now.state not in ("paused", "frozen"):
            raise IllegalMove(f"The plan is {now.state}, not paused.", next=_state_next(now))
        store.db.execute("UPDATE plan SET state = 'active' WHERE id = ?", (now.id,))
        return f"resumed from {now.state}"

    return give(store, plan, "resume", act, words=words, by=by, expected_revision=expected_revision)


def abort(store: Store, plan: Plan, *, words: str, by: str, expected_revision: int | None = None) -> Plan:
    """End the plan: the group in hand is undone after its read-back, all that is pending is cancelled."""

    def act(now: Plan) -> str:
        if now.state in ("closed", "aborted"):
            raise IllegalMove(f"The plan is {now.state} already.", next="uncork run")
        pending = [step for step in now.steps if step.status == Status.PENDING]
        for step in pending:
            store.end(step, "cancelled", f"the plan was aborted: {words}")
        store.db.execute("UPDATE plan SET state = 'aborted' WHERE id = ?", (now.id,))
        return f"aborted; {len(pending)} pending steps cancelled"

    return give(store, plan, "abort", act, words=words, by=by, expected_revision=expected_revision)


def skip(
    store: Store, plan: Plan, step: str, *, words: str, by: str, expected_revision: int | None = None
) -> Plan:
    """Leave a pending step out; what needs it may run. Never a gate, the record, the approval, the confirm."""

    def act(now: Plan) -> str:
        store.end(find(now, step), "skipped", words)
        return "skipped"

    return give(
        store, plan, "skip", act, words=words, by=by, target=step, expected_revision=expected_revision
    )


def cancel(
    store: Store, plan: Plan, step: str, *, words: str, by: str, expected_revision: int | None = None
) -> Plan:
    """End a pending or failed step; what needs it is blocked."""

    def act(now: Plan) -> str:
        store.end(find(now, step), "cancelled", words)
        return "cancelled"

    return give(
        store, plan, "cancel", act, words=words, by=by, target=step, expected_revision=expected_revision
    )


def add(
    store: Store, plan: Plan, draft: StepDraft, *, words: str, by: str, expected_revision: int | None = None
) -> Plan:
    """Add a step; one that writes goes before the gate, which then needs it too, and voids the approval."""

    def act(now: Plan) -> str:
        if draft.kind == Kind.APPLY:
            _add_apply(store, now, draft)
            _void(store, now, "a change was added")
        else:
            add_step(store.db, now.id, draft, max(step.position for step in now.steps) + 1)
        return f"added {draft.name}"

    return give(
        store, plan, "add", act, words=words, by=by, target=draft.name, expected_revision=expected_revision
    )


def edit(
    store: Store,
    plan: Plan,
    step: str,
    *,
    words: str,
    by: str,
    title: str | None = None,
    want: Mapping[str, str] | None = None,
    expected_revision: int | None = None,
) -> Plan:
    """Change a pending step's title, or the wanted value of some targets (which voids the approval)."""

    def act(now: Plan) -> str:
        found = find(now, step)
        if found.status != Status.PENDING:
            raise IllegalMove(
                f"Step {found.name} is {found.status}; only a pending step can be edited.",
                next="uncork plan add --knob K --target T --want V --why '...'",
            )
        if title is not None:
            store.db.execute("UPDATE step SET title = ? WHERE id = ?", (title, found.id))
        if want:
            _rewant(store, found, want)
            _void(store, now, f"a wanted value of {found.name} was changed")
        return "edited"

    return give(
        store, plan, "edit", act, words=words, by=by, target=step, expected_revision=expected_revision
    )


def move(
    store: Store, plan: Plan, step: str, *, before: str, words: str, by: str,
    expected_revision: int | None = None,
) -> Plan:  # fmt: skip
    """Put a pending step before another; refused where it would come before something that it needs."""

    def act(now: Plan) -> str:
        moving, anchor = find(now, step), find(now, before)
        if moving.id == anchor.id:
            raise IllegalMove(
                "A step cannot come before itself.", next="uncork plan move STEP --before OTHER"
            )
        order = [s for s in now.steps if s.id != moving.id]
        order.insert(next(i for i, s in enumerate(order) if s.id == anchor.id), moving)
        place = {s.name: i for i, s in enumerate(order)}
        for one in order:
            late = [need.step for need in one.needs if place[need.step] > place[one.name]]
            if late:
                raise IllegalMove(
                    f"{one.name} needs {late[0]} and would come before it; nothing was moved.",
                    next=f"uncork plan move {step} --before (a step after {late[0]})",
                )
        _renumber(store, order)
        return f"moved before {anchor.name}"

    return give(
        store, plan, "move", act, words=words, by=by, target=step, expected_revision=expected_revision
    )


def replan(
    store: Store,
    plan: Plan,
    drafts: tuple[StepDraft, ...],
    dispose: Mapping[str, str],
    *,
    words: str,
    by: str,
    expected_revision: int | None = None,
) -> Plan:
    """Replace the tail: each open step is kept or cancelled by name, then the new steps are added.

    Finished steps and their evidence stay. Raises `IllegalMove` with the list of open steps that `dispose`
    (name → `keep` or `cancel`) does not name, so that nothing leaks on and nothing is lost.
    """

    def act(now: Plan) -> str:
        open_steps = [s for s in now.steps if s.status in (Status.PENDING, Status.FAILED)]
        left = [s.name for s in open_steps if dispose.get(s.name) not in ("keep", "cancel")]
        if left:
            raise IllegalMove(
                f"Say what becomes of: {', '.join(left)}; nothing was changed.",
                next="uncork plan replan --keep NAME ... --cancel NAME ... --why '...'",
            )
        for gone in (s for s in open_steps if dispose[s.name] == "cancel"):
            store.end(gone, "cancelled", words)
        for draft in drafts:
            _add_apply(store, now, draft) if draft.kind == Kind.APPLY else add_step(
                store.db, now.id, draft, 1 + _last(store, now)
            )
        if any(draft.changes for draft in drafts):
            _void(store, now, "the plan was replaced")
        return f"kept {sum(v == 'keep' for v in dispose.values())}, added {len(drafts)}"

    return give(store, plan, "replan", act, words=words, by=by, expected_revision=expected_revision)


def asked_to_stop(store: Store, plan: str) -> bool:
    """Whether the plan was aborted: asked between two changes of a group."""
    row = store.db.execute("SELECT state FROM plan WHERE id = ?", (plan,)).fetchone()
    return bool(row and row["state"] == "aborted")


def _void(store: Store, plan: Plan, why: str) -> None:
    store.db.execute("UPDATE approval SET voided = ? WHERE plan = ? AND voided IS NULL", (why, plan.id))


def _last(store: Store, plan: Plan) -> int:
    row = store.db.execute("SELECT MAX(position) AS last FROM step WHERE plan = ?", (plan.id,)).fetchone()
    return int(row["last"])


def _add_apply(store: Store, plan: Plan, draft: StepDraft) -> None:
    gates = [s for s in plan.steps if s.kind == Kind.GATE and s.name != "gate-before"]
    if not gates or any(gate.status != Status.PENDING for gate in gates):
        raise IllegalMove(
            "The gate has begun; a change added now would not be covered by it.",
            next="uncork run (a new plan)",
        )
    add_step(store.db, plan.id, draft, _last(store, plan) + 1)
    made = store.db.execute(
        "SELECT id FROM step WHERE plan = ? AND name = ?", (plan.id, draft.name)
    ).fetchone()
    for gate in gates:
        store.db.execute("INSERT INTO step_need VALUES (?, ?, 'ended')", (gate.id, made["id"]))
    now = store.read(plan.id)
    order = [s for s in now.steps if s.name != draft.name]
    order.insert(min(i for i, s in enumerate(order) if s.id == gates[0].id), find(now, draft.name))
    _renumber(store, order)


def _renumber(store: Store, order: list[Step]) -> None:
    """Give pending steps the positions of this order; those that began keep theirs."""
    free = sorted(step.position for step in order)
    for position, step in zip(free, order, strict=True):
        if step.position == position:
            continue
        if step.status != Status.PENDING:
            raise IllegalMove(
                f"Step {step.name} has begun and keeps its place.", next="uncork plan move STEP --before STEP"
            )
        store.db.execute("UPDATE step SET position = ? WHERE id = ?", (position, step.id))


def _rewant(store: Store, step: Step, want: Mapping[str, str]) -> None:
    unknown = set(want) - {change.target for change in step.changes}
    if unknown:
        raise NotFound(
            f"Step {step.name} does not change {', '.join(sorted(unknown))}.",
            next=f"uncork plan show {step.name}",
        )
    changes: list[PlannedChange] = []
    for ord, change in enumerate(step.changes):
        edited = msgspec.structs.replace(change, want=want.get(change.target, change.want))
        store.db.execute(
            "UPDATE change SET body = ? WHERE step = ? AND ord = ?",
            (msgspec.json.encode(edited).decode(), step.id, ord),
        )
        changes.append(edited)
    store.db.execute("UPDATE step SET digest = ? WHERE id = ?", (step_digest(changes), step.id))


def _state_next(plan: Plan) -> str:
    return {
        "active": "uncork plan pause --why '...'",
        "paused": "uncork plan resume --why '...'",
        "frozen": "uncork plan resume --why '...' (after looking at why it froze)",
    }.get(plan.state, "uncork run (a new plan)")
