"""Undo a group of changes, alone: standard library only, run as `python3 -I -S revert.py` from a copy.

The copy lies in the state folder (guard.py puts it there), so that neither an upgrade of uncork nor a broken
virtual environment takes the undo away. What it needs to know of a target is the recipe in the intent's row.

A value is put back only where the present one is still ours. The same program is the guard of a hold: it
waits for the deadline and undoes the group unless it was confirmed; one compare-and-set decides who wins.
"""

import argparse
import errno
import json
import os
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from uncork.apply import chain
from uncork.apply.child import Child, Hung
from uncork.apply.lock import LockHeld, locked
from uncork.knobs import recipes
from uncork.plan import database
from uncork.plan.database import reached

CALL_LIMIT_S = 10.0
POLL_S = 1.0
ROW_TRIES = 600
LEFT = ("failed", "stuck", "drift")
GONE = (errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ESRCH)
UNDOABLE = ("open", "confirmed", "undoing", "undo_failed", "stuck")
Outcome = dict[str, Any]  # ord, target, before, now, end: undone | noop | drift | gone | failed | stuck


def undo(
    db: sqlite3.Connection, txn: str, *, why: str, actor: dict[str, Any], was: tuple[str, ...] = UNDOABLE
) -> list[Outcome] | None:
    """Put back what a group wrote, newest first; what came of each target.

    The caller holds the lock. None where the hold is not in one of the states `was` (another one decided) or
    belongs to an earlier boot (then it is marked `lost_at_reboot` and nothing is written). Repeating it after a
    crash is safe.
    """
    if not _claim(db, txn, why, actor, was):
        return None
    outcomes = []
    child = Child(serve)
    try:
        for intent in reversed(intents(db, txn)):
            outcome = undo_target(child, intent)
            outcomes.append(outcome)
            with database.immediate(db):
                chain.append(db, txn, ROW[outcome["end"]], {**outcome, "actor": actor}, ord=intent["ord"])
            if outcome["end"] == "stuck":
                child = Child(serve)
    finally:
        child.close()
    _finish(db, txn, why, outcomes)
    return outcomes


ROW = {
    "undone": "undone",
    "noop": "undone",
    "gone": "undone",
    "drift": "drift",
    "failed": "undo_failed",
    "stuck": "undo_failed",
}


def _claim(db: sqlite3.Connection, txn: str, why: str, actor: dict[str, Any], was: tuple[str, ...]) -> bool:
    with database.immediate(db):
        hold = db.execute("SELECT * FROM hold WHERE txn = ?", (txn,)).fetchone()
        if hold is None or hold["state"] not in was:
            return False
        if hold["boot_id"] != database.boot_id():
            db.execute("UPDATE hold SET state = 'lost_at_reboot' WHERE txn = ?", (txn,))
            for intent in intents(db, txn):
                chain.append(db, txn, "lost_at_reboot", {"actor": actor}, ord=intent["ord"])
            end_step(
                db, hold["step"], "the host rebooted: what was set at run time is lost, nothing was written"
            )
            return False
        db.execute("UPDATE hold SET state = 'undoing' WHERE txn = ?", (txn,))
        chain.append(db, txn, "undo", {"why": why, "was": hold["state"], "actor": actor})
        return True


def intents(db: sqlite3.Connection, txn: str) -> list[dict[str, Any]]:
    """The intents of a group in the order of writing, each with `got`: what was read back, where it was."""
    found: dict[int, dict[str, Any]] = {}
    for row in db.execute(
        "SELECT kind, ord, body FROM journal WHERE txn = ? AND kind IN ('intent', 'applied', 'failed')"
        " ORDER BY seq",
        (txn,),
    ):
        body = json.loads(row["body"])
        if row["kind"] == "intent":
            found[row["ord"]] = body
        elif body.get("got") is not None and row["ord"] in found:
            found[row["ord"]]["got"] = body["got"]
    return list(found.values())


def serve(request: dict[str, Any]) -> dict[str, Any]:
    """What the child does: read or write a target by its recipe."""
    if request["op"] == "read":
        return {"value": recipes.read(request["recipe"])}
    reached("before-undo-write")
    recipes.write(request["recipe"], request["value"])
    reached("after-undo-write")
    return {}


def undo_target(child: Child, intent: dict[str, Any]) -> Outcome:
    """Put one target back if its value is still ours; what came of it. Writes no row."""
    recipe, before = intent["recipe"], intent["before"]
    outcome: Outcome = {"target": intent["target"], "knob": intent["knob"], "before": before, "now": None}
    outcome["by_hand"] = intent.get("by_hand", "")

    def read() -> str:
        value: str = child.ask({"op": "read", "recipe": recipe}, CALL_LIMIT_S)
        return value

    try:
        now = outcome["now"] = read()
        if recipes.same(recipe, before, now):
            return {**outcome, "end": "noop"}
        ours = [value for value in (intent["want"], intent.get("got")) if value is not None]
        if not any(recipes.same(recipe, value, now) for value in ours):
            return {**outcome, "end": "drift"}
        child.ask({"op": "write", "recipe": recipe, "value": before}, CALL_LIMIT_S)
        now = outcome["now"] = read()
        return {**outcome, "end": "undone" if recipes.same(recipe, before, now) else "failed"}
    except OSError as error:
        # A device or a process that left took its setting with it.
        end = "gone" if error.errno in GONE else "failed"
        return {**outcome, "end": end, "errno": error.errno, "says": str(error)}
    except Hung:
        return {**outcome, "end": "stuck"}


def put_back(known: list[dict[str, Any]]) -> list[Outcome]:
    """Undo intents without a row, where the journal takes none."""
    child = Child(serve)
    try:
        return [undo_target(child, intent) for intent in reversed(known)]
    finally:
        child.close()


def undo_others(db: sqlite3.Connection, txn: str, stuck: int, *, actor: dict[str, Any]) -> None:
    """Put back all of a group but the target whose write hangs; the hold becomes `stuck`."""
    child = Child(serve)
    for intent in reversed(intents(db, txn)):
        if intent["ord"] != stuck:
            outcome = undo_target(child, intent)
            with database.immediate(db):
                chain.append(db, txn, ROW[outcome["end"]], {**outcome, "actor": actor}, ord=intent["ord"])
    child.close()
    with database.immediate(db):
        db.execute("UPDATE hold SET state = 'stuck' WHERE txn = ? AND state = 'open'", (txn,))


def _finish(db: sqlite3.Connection, txn: str, why: str, outcomes: list[Outcome]) -> None:
    ends = [outcome["end"] for outcome in outcomes]
    bad = [outcome["target"] for outcome in outcomes if outcome["end"] in ("failed", "stuck")]
    drifted = [outcome["target"] for outcome in outcomes if outcome["end"] == "drift"]
    with database.immediate(db):
        hold = db.execute("SELECT * FROM hold WHERE txn = ?", (txn,)).fetchone()
        db.execute("UPDATE hold SET state = ? WHERE txn = ?", ("undo_failed" if bad else "undone", txn))
        chain.append(db, txn, "undo_ended", {"why": why, "ends": {end: ends.count(end) for end in set(ends)}})
        if bad:
            db.execute(
                "UPDATE plan SET state = 'frozen' WHERE id = ? AND state IN ('active', 'paused')",
                (hold["plan"],),
            )
        else:
            left = f"; left alone, changed by someone else: {', '.join(drifted)}" if drifted else ""
            end_step(db, hold["step"], f"{why}{left}")


def end_step(db: sqlite3.Connection, step: int | None, reason: str) -> None:
    """Mark an applied step as reverted, except where the engine that runs it is about to say more."""
    row = db.execute(
        "SELECT s.status, l.boot_id, l.pid, l.start_ticks FROM step s LEFT JOIN lease l ON l.step = s.id"
        " WHERE s.id = ?",
        (step,),
    ).fetchone()
    if row is None or row["status"] not in ("completed", "failed", "in_progress"):
        return
    running = row["status"] == "in_progress" and (
        row["boot_id"] == database.boot_id() and database.start_ticks(row["pid"]) == row["start_ticks"]
    )
    if not running:
        db.execute(
            "UPDATE step SET status = 'reverted', reason = ?, ended_ns = ? WHERE id = ?",
            (reason, time.time_ns(), step),
        )


def guard(db: sqlite3.Connection, folder: Path, txn: str, watch: "Watch | None" = None) -> int:
    """Wait for the deadline of an open hold and then undo it, unless it was confirmed first; an exit status.

    A full, failing or ruined disk must not keep the host from being put back: past the deadline nobody can
    confirm, so the group is undone once from what was last read, and the rows are tried again for a while.
    """
    watch = watch or Watch(db, txn)
    tries = 0
    while tries < ROW_TRIES:
        if not watch.look():
            return 0
        left_s = (watch.deadline_ns - database.boot_ns()) / 1e9
        if left_s > 0:
            time.sleep(min(left_s, POLL_S))
            continue
        try:
            with locked(folder, wait_s=POLL_S):
                outcomes = undo(
                    db,
                    txn,
                    why="not confirmed before its deadline",
                    actor=chain.actor("guard"),
                    was=("open", "undoing"),
                )
        except LockHeld:
            continue
        except (sqlite3.Error, OSError):
            if not tries:
                put_back(watch.intents)
            tries += 1
            time.sleep(POLL_S)
            continue
        return 30 if any(outcome["end"] in LEFT for outcome in outcomes or ()) else 0
    return 30


class Watch:
    """What a guard last read of its hold."""

    def __init__(self, db: sqlite3.Connection, txn: str) -> None:
        self._db, self._txn, self._version = db, txn, -1
        self.deadline_ns = 0
        self.intents: list[dict[str, Any]] = []

    def look(self) -> bool:
        """Read again; false where the hold needs no guard any more. An unreadable disk changes nothing."""
        try:
            hold = self._db.execute("SELECT * FROM hold WHERE txn = ?", (self._txn,)).fetchone()
            if hold is None or hold["state"] not in ("open", "undoing"):
                return False
            if hold["boot_id"] != database.boot_id():
                return False
            self.deadline_ns = hold["deadline_boot_ns"]
            version = self._db.execute("PRAGMA data_version").fetchone()[0]
            if version != self._version:
                self.intents, self._version = intents(self._db, self._txn), version
        except sqlite3.Error:
            if not self.deadline_ns:
                raise
        return True


def main(argv: list[str]) -> int:
    """`--db FILE --txn ID`: guard that hold. `--now`: undo it at once. Exit 0 undone, 30 not all of it."""
    options = argparse.ArgumentParser(prog="revert.py", description="Undo a group of changes of uncork.")
    options.add_argument("--db", required=True, type=Path)
    options.add_argument("--txn", required=True)
    options.add_argument("--now", action="store_true", help="do not wait for the deadline")
    options.add_argument("--detach", action="store_true", help="go on in the background, then print 'armed'")
    given = options.parse_args(argv)
    if given.detach and not _detach():
        return 0
    db = database.connect(given.db)
    if not given.now:
        watch = Watch(db, given.txn)
        watch.look()  # from here on it knows what to undo
        if given.detach:
            _say_armed()
        return guard(db, given.db.parent, given.txn, watch)
    try:
        with locked(given.db.parent, wait_s=CALL_LIMIT_S):
            outcomes = undo(db, given.txn, why="revert.py --now", actor=chain.actor("human"))
    except LockHeld as held:
        print(f"another uncork writes to this host ({held.holder}); nothing was put back", file=sys.stderr)
        return 16
    for outcome in outcomes or ():
        print(json.dumps(outcome))
    return 30 if any(o["end"] in LEFT for o in outcomes or ()) else 0


def _detach() -> bool:
    """Fork; true in the child, which belongs to nobody's terminal and is not killed first for memory."""
    if os.fork():
        return False
    os.setsid()
    try:
        Path("/proc/self/oom_score_adj").write_text("-900", encoding="ascii")
    except OSError:
        pass
    return True


def _say_armed() -> None:
    print(f"armed {os.getpid()} {database.start_ticks(os.getpid())}", flush=True)
    quiet = os.open(os.devnull, os.O_RDWR)
    os.dup2(quiet, 1)
    os.close(quiet)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
