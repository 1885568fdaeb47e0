"""What to do about an uncork that died: read the journal and the present values, then put things in order.

Same boot: a group that was in the middle of being written was never tested as a whole, so it is undone; an undo
that was cut short goes on; an applied group keeps its hold and gets a timer again if its own is gone. After a
reboot nothing is written: the boot's defaults rule, and the old before-value may be wrong for this boot.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from uncork.apply import chain, revert
from uncork.apply.alone import WAIT_S, alone
from uncork.apply.guard import NotArmed, arm, armed
from uncork.errors import NotFound
from uncork.model.plan import Shown, Status, Step
from uncork.plan import database
from uncork.plan.store import Store, refusing


class Recovered(msgspec.Struct, frozen=True):
    """One thing that recovery did: to which hold or step, what, and each target's end where values were read."""

    subject: str
    did: str
    outcomes: tuple[dict[str, Any], ...] = ()


def recover(
    store: Store,
    *,
    guard: Callable[[Path, Path, str, int], str] = arm,
    is_armed: Callable[[str], bool] = armed,
    wait_s: float = WAIT_S,
) -> list[Recovered]:
    """Put in order what a dead uncork left; each thing done. Repeating it is safe. Raises `Locked`."""
    with alone(store.folder, wait_s=wait_s), refusing():
        return _holds(store, guard, is_armed) + _steps(store)


def needed(store: Store) -> bool:
    """Whether there is anything to recover: an open end whose owner is gone. Reads only."""
    rows = store.db.execute(
        "SELECT * FROM hold WHERE state IN ('open', 'undoing', 'stuck', 'undo_failed')"
    ).fetchall()
    if any(h["boot_id"] != database.boot_id() or h["state"] != "open" or _overdue(h) for h in rows):
        return True
    return any(not armed(h["guard"]) for h in rows) or bool(_dead_steps(store))


def _holds(
    store: Store, guard: Callable[[Path, Path, str, int], str], is_armed: Callable[[str], bool]
) -> list[Recovered]:
    done = []
    actor = chain.actor("recovery")
    for hold in store.db.execute(
        "SELECT h.*, s.status FROM hold h LEFT JOIN step s ON s.id = h.step"
        " WHERE h.state IN ('open', 'undoing', 'stuck', 'undo_failed') ORDER BY h.rowid DESC"
    ).fetchall():
        txn = hold["txn"]
        if hold["boot_id"] != database.boot_id():
            revert.undo(store.db, txn, why="rebooted", actor=actor)
            done.append(Recovered(txn, "lost at reboot; nothing was written"))
        elif hold["state"] == "open" and hold["status"] == Status.COMPLETED and not _overdue(hold):
            if not is_armed(hold["guard"]):
                done.append(_rearm(store, hold, guard))
        else:
            why = _why(hold)
            outcomes = revert.undo(store.db, txn, why=why, actor=actor) or []
            done.append(Recovered(txn, f"undone: {why}", tuple(outcomes)))
    return done


def _why(hold: Any) -> str:
    if hold["state"] == "open":
        return (
            "its deadline passed"
            if hold["status"] == Status.COMPLETED
            else "uncork died while it was written"
        )
    return {"undoing": "its undo was cut short", "stuck": "a write had not returned"}.get(
        hold["state"], "its undo had failed"
    )


def _overdue(hold: Any) -> bool:
    return bool(hold["deadline_boot_ns"] <= database.boot_ns())


def _rearm(store: Store, hold: Any, guard: Callable[[Path, Path, str, int], str]) -> Recovered:
    try:
        name = guard(store.folder, store.path, hold["txn"], hold["deadline_boot_ns"])
    except NotArmed as error:
        outcomes = revert.undo(
            store.db,
            hold["txn"],
            why=f"no revert timer could be armed: {error}",
            actor=chain.actor("recovery"),
        )
        return Recovered(hold["txn"], "undone: no revert timer could be armed", tuple(outcomes or ()))
    with store.writing() as db:
        db.execute("UPDATE hold SET guard = ? WHERE txn = ?", (name, hold["txn"]))
        chain.append(db, hold["txn"], "armed", {"guard": name, "again": True})
    return Recovered(hold["txn"], "still held; its revert timer was gone and runs again")


def _dead_steps(store: Store) -> list[Step]:
    try:
        plan = store.read()
    except NotFound:
        return []
    return [step for step in plan.steps if step.shown == Shown.INTERRUPTED]


def _steps(store: Store) -> list[Recovered]:
    """Steps whose process is gone: readers run again; a writer whose group was put back is reverted."""
    done = []
    for step in _dead_steps(store):
        if any(hold.step == step.id for hold in store.read().holds):
            store.revert(step, "uncork died after the group had been put back")
            done.append(Recovered(step.name, "its group had been put back; it is reverted"))
        else:
            store.unstart(step)
            done.append(Recovered(step.name, "was interrupted; it is pending again"))
    return done
