"""The whole plan as one consistent read, with the states that are derived and never stored."""

import json
import sqlite3
from collections import defaultdict
from typing import Any

import msgspec

from uncork.errors import NotFound
from uncork.model.findings import Priority
from uncork.model.plan import (
    Approval,
    Deferred,
    Directive,
    Hold,
    Kind,
    Need,
    Plan,
    PlannedChange,
    Shown,
    Status,
    Step,
    StepEvidence,
)
from uncork.plan.database import boot_id, boot_ns, start_ticks
from uncork.plan.digest import plan_digest

ENDED_BADLY = ("failed", "reverted", "cancelled")
SUCCEEDED = ("completed", "skipped")


def read_plan(db: sqlite3.Connection, plan: str | None) -> Plan:
    """The plan of that id, or the open one, or the latest, in one read transaction. Raises `NotFound`."""
    own_read = not db.in_transaction
    if own_read:
        db.execute("BEGIN")
    try:
        return _read(db, plan)
    finally:
        if own_read:
            db.execute("COMMIT")


def _read(db: sqlite3.Connection, plan: str | None) -> Plan:
    row = db.execute(
        "SELECT * FROM plan WHERE id = ? OR ? IS NULL"
        " ORDER BY state IN ('active', 'paused', 'frozen') DESC, created_ns DESC LIMIT 1",
        (plan, plan),
    ).fetchone()
    if row is None:
        named = f"no plan {plan}" if plan else "no plan yet"
        raise NotFound(f"There is {named} on this host.", next="uncork plan" if plan else "uncork run")
    holds = tuple(
        Hold(h["txn"], h["step"] or 0, h["state"], h["boot_id"], h["deadline_boot_ns"], h["guard"])
        for h in db.execute("SELECT * FROM hold WHERE plan = ? ORDER BY rowid", (row["id"],))
    )
    steps = _steps(db, row["id"], holds)
    return Plan(
        id=row["id"],
        host=row["host"],
        revision=row["revision"],
        state=row["state"],
        steps=steps,
        deferred=msgspec.json.decode(row["deferred"], type=tuple[Deferred, ...]),
        digest=plan_digest((step.name, step.digest) for step in to_approve(steps)),
        record_sha256=row["record_sha256"],
        approvals=_approvals(db, row["id"]),
        holds=holds,
        directives=_directives(db, row["id"]),
        created_ns=row["created_ns"],
    )


def to_approve(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps that still would write: pending or failed ones with changes."""
    return tuple(s for s in steps if s.kind == Kind.APPLY and s.status in (Status.PENDING, Status.FAILED))


def _steps(db: sqlite3.Connection, plan: str, holds: tuple[Hold, ...]) -> tuple[Step, ...]:
    rows = db.execute("SELECT * FROM step WHERE plan = ? ORDER BY position, id", (plan,)).fetchall()
    names = {row["id"]: row["name"] for row in rows}
    status = {row["id"]: row["status"] for row in rows}
    needs, changes, evidence = defaultdict(list), defaultdict(list), defaultdict(list)
    mine = "IN (SELECT id FROM step WHERE plan = ?)"
    for need in db.execute(f"SELECT * FROM step_need WHERE step {mine} ORDER BY needs", (plan,)):
        needs[need["step"]].append(need)
    for change in db.execute(f"SELECT * FROM change WHERE step {mine} ORDER BY ord", (plan,)):
        changes[change["step"]].append(msgspec.json.decode(change["body"], type=PlannedChange))
    for e in db.execute(f"SELECT * FROM evidence WHERE step {mine} ORDER BY id", (plan,)):
        evidence[e["step"]].append(
            StepEvidence(e["verdict"], e["summary"], e["artefact"], e["attempt"], e["wall_ns"])
        )
    leases = {row["step"]: row for row in db.execute(f"SELECT * FROM lease WHERE step {mine}", (plan,))}
    failed = defaultdict(list)
    for refused in db.execute(
        "SELECT j.txn, j.body FROM journal j JOIN hold h ON h.txn = j.txn WHERE h.plan = ? AND j.kind = 'failed'",
        (plan,),
    ):
        failed[refused["txn"]].append(json.loads(refused["body"])["target"])
    made = []
    for row in rows:
        waits = [(names[n["needs"]], n["condition"], status[n["needs"]]) for n in needs[row["id"]]]
        hold = next((h for h in reversed(holds) if h.step == row["id"]), None)
        shown, detail = derive(row["status"], waits, leases.get(row["id"]), hold)
        made.append(
            Step(
                id=row["id"],
                name=row["name"],
                position=row["position"],
                kind=Kind(row["kind"]),
                title=row["title"],
                why=row["why"],
                priority=Priority(row["priority"]),
                status=Status(row["status"]),
                shown=shown,
                detail=detail,
                reason=row["reason"],
                attempt=row["attempt"],
                policy=row["policy"],
                needs=tuple(Need(name, condition) for name, condition, _ in waits),
                changes=tuple(changes[row["id"]]),
                digest=row["digest"],
                evidence=tuple(evidence[row["id"]]),
                redo_of=names.get(row["redo_of"]),
                started_ns=row["started_ns"],
                ended_ns=row["ended_ns"],
                not_taken=tuple(failed[hold.txn]) if hold else (),
            )
        )
    return tuple(made)


def derive(
    status: str, waits: list[tuple[str, str, str]], lease: Any, hold: Hold | None
) -> tuple[Shown, str]:
    """What a person sees, and the few words that say why."""
    if status == "pending":
        bad = [name for name, need, now in waits if now in ENDED_BADLY and need == "completed"]
        if bad:
            return Shown.BLOCKED, "blocked by " + ", ".join(bad)
        open_ = [
            n for n, need, now in waits if now not in SUCCEEDED + (ENDED_BADLY if need == "ended" else ())
        ]
        return (Shown.PENDING, "waits for " + ", ".join(open_)) if open_ else (Shown.READY, "")
    if status == "in_progress" and not alive(lease):
        return Shown.INTERRUPTED, "the process that ran it is gone"
    if status in ("in_progress", "completed") and hold:
        if hold.boot_id != boot_id():
            return Shown.DRIFTED, "the host has rebooted since; runtime changes are lost"
        if hold.state == "open":
            left_s = (hold.deadline_boot_ns - boot_ns()) // 1_000_000_000
            return Shown.UNCONFIRMED, f"reverts in {max(0, left_s) // 60:02d}:{max(0, left_s) % 60:02d}"
    return Shown(status), ""


def alive(lease: Any) -> bool:
    """Whether the process that took a lease still runs: same boot, pid and start time."""
    return bool(lease and lease["boot_id"] == boot_id() and start_ticks(lease["pid"]) == lease["start_ticks"])


def _approvals(db: sqlite3.Connection, plan: str) -> tuple[Approval, ...]:
    used: dict[int, list[str]] = defaultdict(list)
    unused: dict[int, dict[str, str]] = defaultdict(dict)
    for row in db.execute(
        "SELECT u.approval, u.digest, u.used_attempt, s.name FROM approval_step u"
        " JOIN step s ON s.id = u.step WHERE s.plan = ?",
        (plan,),
    ):
        if row["used_attempt"] is None:
            unused[row["approval"]][row["name"]] = row["digest"]
        else:
            used[row["approval"]].append(row["name"])
    return tuple(
        Approval(
            *(a["id"], a["digest"], a["by"], a["how"], a["wall_ns"], a["voided"]),
            used=tuple(used[a["id"]]),
            unused=unused[a["id"]],
        )
        for a in db.execute("SELECT * FROM approval WHERE plan = ? ORDER BY id", (plan,))
    )


def _directives(db: sqlite3.Connection, plan: str) -> tuple[Directive, ...]:
    return tuple(
        Directive(
            *(d["seq"], d["op"], d["target"], d["words"], d["by"], d["base_revision"], d["outcome"]),
            d["wall_ns"],
        )
        for d in db.execute("SELECT * FROM directive WHERE plan = ? ORDER BY seq", (plan,))
    )
