"""Consent to exact changes: bound to a digest over targets, before-values and wanted values, used once."""

import hmac
import time

import msgspec

from uncork.errors import NotApproved
from uncork.model.plan import Approval, Plan
from uncork.plan.reading import to_approve
from uncork.plan.store import Store


def approve(store: Store, plan: Plan, digest: str, *, by: str, how: str) -> Approval:
    """Store consent to what `plan` would still write; `digest` is its digest or the first 8 hex of it.

    Raises `NotApproved` where the digest is not that of the changes as they stand now, or nothing is to be
    approved. Consent never carries arguments: what is applied is what is stored.
    """
    with store.writing() as db:
        now = store.read(plan.id)
        steps = to_approve(now.steps)
        if not steps:
            raise NotApproved("Nothing in this plan waits for an approval.", next="uncork plan")
        if len(digest) < 8 or not hmac.compare_digest(now.digest[: len(digest)], digest.lower()):
            raise NotApproved(
                f"{digest or 'An empty digest'} does not name the changes as they stand now"
                f" ({now.digest[:8]}); nothing was approved.",
                next=f"uncork plan, then uncork approve {now.digest[:8]}",
            )
        changes = msgspec.json.encode([(step.name, step.changes) for step in steps]).decode()
        db.execute(
            "UPDATE approval SET voided = 'replaced by a newer one' WHERE plan = ? AND voided IS NULL",
            (now.id,),
        )
        cursor = db.execute(
            "INSERT INTO approval(plan, digest, changes, by, how, wall_ns) VALUES (?, ?, ?, ?, ?, ?)",
            (now.id, now.digest, changes, by, how, time.time_ns()),
        )
        for step in steps:
            db.execute(
                "INSERT INTO approval_step(approval, step, digest) VALUES (?, ?, ?)",
                (cursor.lastrowid, step.id, step.digest),
            )
    return store.read(now.id).approvals[-1]


def void(store: Store, plan: str, why: str) -> int:
    """Make every approval of the plan void (drift, changed values); how many were."""
    with store.writing() as db:
        return db.execute(
            "UPDATE approval SET voided = ? WHERE plan = ? AND voided IS NULL", (why, plan)
        ).rowcount


def approved(plan: Plan) -> bool:
    """Whether all that would still be written is covered by one approval that is neither void nor used."""
    waiting = to_approve(plan.steps)
    return bool(waiting) and any(
        all(approval.unused.get(step.name) == step.digest for step in waiting)
        for approval in plan.approvals
        if approval.voided is None
    )
