"""The hold of an applied group: confirm it, move its deadline, or undo it. One compare-and-set decides."""

from typing import Any

from uncork.apply import chain, revert
from uncork.apply.alone import alone
from uncork.apply.guard import disarm
from uncork.errors import IllegalMove, NotFound
from uncork.model.plan import Hold, Plan
from uncork.plan import database
from uncork.plan.store import Store


def confirm(store: Store, txn: str, *, actor: dict[str, Any] | None = None, why: str = "") -> None:
    """Keep the group: open → confirmed before its deadline. Raises `IllegalMove` where that has come.

    `why` goes into the journal: a confirm without the gate says so for ever.
    """
    with store.writing() as db:
        won = db.execute(
            "UPDATE hold SET state = 'confirmed' WHERE txn = ? AND state = 'open' AND deadline_boot_ns > ?",
            (txn, database.boot_ns()),
        ).rowcount
        if not won:
            raise _too_late(store, txn)
        chain.append(db, txn, "confirmed", {"why": why, "actor": actor or chain.actor()})
        guard = db.execute("SELECT guard FROM hold WHERE txn = ?", (txn,)).fetchone()["guard"]
    disarm(guard)


def confirm_all(store: Store, plan: Plan, *, actor: dict[str, Any] | None = None, why: str = "") -> int:
    """Keep every open group of the plan; how many. Raises `IllegalMove` where one has already been undone."""
    holds = [hold for hold in store.read(plan.id).holds if hold.state == "open"]
    for hold in holds:
        confirm(store, hold.txn, actor=actor, why=why)
    return len(holds)


def extend(store: Store, txn: str, seconds: float, *, actor: dict[str, Any] | None = None) -> int:
    """Move an open hold's deadline later, counted from now; the new deadline (ns since boot)."""
    deadline_ns = database.boot_ns() + int(seconds * 1e9)
    with store.writing() as db:
        row = db.execute("SELECT * FROM hold WHERE txn = ?", (txn,)).fetchone()
        if row is None or row["state"] != "open" or row["deadline_boot_ns"] <= database.boot_ns():
            raise _too_late(store, txn)
        if deadline_ns <= row["deadline_boot_ns"]:
            raise IllegalMove(
                "That is sooner than the deadline it has; a deadline only moves later.",
                next="uncork rollback (to undo it now), or a longer time",
            )
        db.execute("UPDATE hold SET deadline_boot_ns = ? WHERE txn = ?", (deadline_ns, txn))
        chain.append(db, txn, "extended", {"deadline_boot_ns": deadline_ns, "actor": actor or chain.actor()})
    return deadline_ns


def undo(
    store: Store, txn: str, *, why: str, actor: dict[str, Any] | None = None
) -> list[revert.Outcome] | None:
    """Put a group back where its values are still ours; what came of each target, newest write first.

    None where there is nothing to undo: undone already, or from before a reboot. Raises `Locked`.
    """
    with alone(store.folder):
        return revert.undo(store.db, txn, why=why, actor=actor or chain.actor())


def open_holds(plan: Plan) -> list[Hold]:
    """The holds that would still revert by themselves."""
    return [hold for hold in plan.holds if hold.state == "open"]


def _too_late(store: Store, txn: str) -> IllegalMove | NotFound:
    row = store.db.execute("SELECT state FROM hold WHERE txn = ?", (txn,)).fetchone()
    if row is None:
        return NotFound(f"There is no hold {txn}.", next="uncork journal")
    said = {
        "open": "is past its deadline and about to be undone",
        "confirmed": "is confirmed already",
        "undone": "has been undone",
        "undoing": "is being undone",
        "lost_at_reboot": "was lost when the host rebooted",
    }.get(row["state"], f"is {row['state']}")
    return IllegalMove(f"Hold {txn} {said}.", next="uncork plan (shows what is in force), uncork run (again)")
