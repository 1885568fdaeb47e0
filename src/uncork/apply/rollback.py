"""Undo everything of ours that is still in force, newest first."""

from typing import Any

import msgspec

from uncork.apply import chain, revert
from uncork.apply.alone import alone
from uncork.plan.store import Store, refusing


class Undone(msgspec.Struct, frozen=True):
    """One group that was looked at: its transaction, step, and what came of each target."""

    txn: str
    step: str
    outcomes: tuple[dict[str, Any], ...]

    @property
    def left(self) -> list[dict[str, Any]]:
        """The targets that are not as they were before."""
        return [o for o in self.outcomes if o["end"] in revert.LEFT]


def rollback(
    store: Store, *, why: str = "uncork rollback", actor: dict[str, Any] | None = None
) -> list[Undone]:
    """Put back every group that is open, confirmed or half undone; none where there is nothing of ours.

    Groups of an earlier boot are marked as lost and nothing is written for them. Raises `Locked`.
    """
    with alone(store.folder):
        done = []
        for hold in in_force(store):
            with refusing():
                outcomes = revert.undo(store.db, hold["txn"], why=why, actor=actor or chain.actor())
            if outcomes is not None:
                done.append(Undone(hold["txn"], hold["name"] or "", tuple(outcomes)))
        return done


def in_force(store: Store) -> list[Any]:
    """The holds that are not at their end, newest first."""
    return store.db.execute(
        "SELECT h.*, s.name FROM hold h LEFT JOIN step s ON s.id = h.step"
        " WHERE h.state IN ('open', 'confirmed', 'undoing', 'undo_failed', 'stuck') ORDER BY h.rowid DESC"
    ).fetchall()
