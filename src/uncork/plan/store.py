"""The plan of record in SQLite: create, read, and the moves that only the engine makes.

Refusals come from the schema (schema.sql); here they become the error a person sees, with the call that would
be accepted.
"""

import importlib.resources
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from uncork.errors import Corrupt, IllegalMove, Locked, NotApproved, NotFound, StateUnwritable, UncorkError
from uncork.model.plan import Plan, PlanDraft, Step, StepDraft
from uncork.plan import database
from uncork.plan.digest import step_digest
from uncork.state import state_dir

SCHEMA_VERSION = 1
FILE = "state.db"

_REFUSALS: dict[str, type[UncorkError]] = {
    "not-approved": NotApproved,
    "chain": Corrupt,
}
_NEXT = {
    "not-skippable": "uncork plan cancel STEP --why '...' (blocks what needs it)",
    "plan-not-active": "uncork plan resume --why '...' (a paused plan), or uncork run (a new one)",
    "needs": "uncork plan (shows what it waits for)",
    "no-record": "uncork run (writes the record first)",
    "not-approved": "uncork approve",
    "no-evidence": "record evidence for the step whose verdict is pass, or fail the step",
    "plan-ended": "uncork run (starts a new plan)",
    "plan-open": "uncork plan abort --why '...'",
}


class Store:
    """One connection to the plan of record. A second process may read at any time; writers queue."""

    def __init__(self, folder: Path | None = None, *, create: bool = True) -> None:
        """Open `state.db` in the folder (the state folder by default).

        Raises `StateUnwritable` where it cannot be written and `NotFound` where there is none to open.
        """
        self.folder = folder or state_dir()
        self.path = self.folder / FILE
        if not create and not self.path.exists():
            raise NotFound("There is no plan on this host yet.", next="uncork run")
        try:
            with refusing():
                self.db = database.connect(self.path, create=create)
                self._migrate()
        except OSError as error:
            raise unwritable(error) from error

    def close(self) -> None:
        """Close the connection."""
        self.db.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One write transaction; what the schema refuses raises its error, and nothing is stored."""
        with refusing(), database.immediate(self.db):
            yield self.db

    def _migrate(self) -> None:
        version = self.db.execute("PRAGMA user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        if version > SCHEMA_VERSION:
            raise Corrupt(
                f"{self.path} was written by a newer uncork (schema {version}); nothing was changed.",
                next="run the newer uncork",
            )
        schema = importlib.resources.files("uncork.plan").joinpath("schema.sql").read_text(encoding="utf-8")
        with database.immediate(self.db):
            # Another process may have made the tables while this one waited for the lock.
            if self.db.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in statements(schema):
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    # Plans -------------------------------------------------------------------------------------------------

    def create(self, draft: PlanDraft) -> Plan:
        """Store a plan as the one open plan. Raises `IllegalMove` while another is open."""
        plan = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(2)
        with self.writing() as db:
            open_plan = db.execute(
                "SELECT id FROM plan WHERE state IN ('active', 'paused', 'frozen')"
            ).fetchone()
            if open_plan:
                raise IllegalMove(
                    f"Plan {open_plan['id']} is still open; a host has one open plan.",
                    next="uncork plan (to see it), uncork plan abort --why '...' (to end it)",
                )
            db.execute(
                "INSERT INTO plan(id, host, deferred, created_ns) VALUES (?, ?, ?, ?)",
                (plan, draft.host, msgspec.json.encode(draft.deferred).decode(), time.time_ns()),
            )
            for position, step in enumerate(draft.steps, 1):
                add_step(db, plan, step, position)
        return self.read(plan)

    def read(self, plan: str | None = None) -> Plan:
        """The plan of that id, or the open one, or the latest. Raises `NotFound`."""
        from uncork.plan.reading import read_plan

        with refusing():
            return read_plan(self.db, plan)

    def plans(self) -> list[tuple[str, str]]:
        """Id and state of every plan, newest first."""
        rows = self.db.execute("SELECT id, state FROM plan ORDER BY created_ns DESC")
        return [(row["id"], row["state"]) for row in rows]

    def seal_record(self, plan: str, sha256: str) -> None:
        """Note the hash of the record that is on disk; no change starts before it."""
        with self.writing() as db:
            db.execute("UPDATE plan SET record_sha256 = ? WHERE id = ?", (sha256, plan))

    def freeze(self, plan: str) -> None:
        """Let nothing start until a person resumes the plan (a stuck write, a failed undo)."""
        with self.writing() as db:
            db.execute(
                "UPDATE plan SET state = 'frozen' WHERE id = ? AND state IN ('active', 'paused')", (plan,)
            )

    def close_plan(self, plan: str) -> None:
        """End a plan whose steps have all ended."""
        with self.writing() as db:
            db.execute("UPDATE plan SET state = 'closed' WHERE id = ?", (plan,))

    # The engine's moves ------------------------------------------------------------------------------------

    def start(self, step: Step) -> None:
        """pending (or failed) → in_progress under this process's lease, using up the step's approval."""
        with self.writing() as db:
            now = db.execute("SELECT attempt, digest FROM step WHERE id = ?", (step.id,)).fetchone()
            attempt, pid = now["attempt"] + 1, os.getpid()
            db.execute(
                "INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?, ?)",
                (step.id, database.boot_id(), pid, database.start_ticks(pid) or 0, time.time_ns()),
            )
            if step.kind == "apply":
                db.execute(
                    "UPDATE approval_step SET used_attempt = ? WHERE step = ? AND digest = ? AND used_attempt"
                    " IS NULL AND approval = (SELECT MAX(a.id) FROM approval a JOIN approval_step u"
                    " ON u.approval = a.id WHERE u.step = ? AND a.voided IS NULL)",
                    (attempt, step.id, now["digest"], step.id),
                )
            with self._moving(step, "in_progress"):
                db.execute(
                    "UPDATE step SET status = 'in_progress', attempt = ?, started_ns = ?, ended_ns = NULL,"
                    " reason = '', writing = (SELECT writes FROM kind WHERE name = step.kind) WHERE id = ?",
                    (attempt, time.time_ns(), step.id),
                )

    def evidence(self, step: Step, verdict: str, summary: str, artefact: str = "") -> None:
        """Add evidence to a running step: `pass`, `fail` or `inconclusive`, one line, a path or hash."""
        with self.writing() as db:
            db.execute(
                "INSERT INTO evidence(step, attempt, verdict, summary, artefact, wall_ns)"
                " SELECT id, attempt, ?, ?, ?, ? FROM step WHERE id = ?",
                (verdict, summary, artefact, time.time_ns(), step.id),
            )

    def complete(self, step: Step, summary: str, artefact: str = "") -> None:
        """in_progress → completed with this passing evidence."""
        with self.writing() as db:
            db.execute(
                "INSERT INTO evidence(step, attempt, verdict, summary, artefact, wall_ns)"
                " SELECT id, attempt, 'pass', ?, ?, ? FROM step WHERE id = ?",
                (summary, artefact, time.time_ns(), step.id),
            )
            self.end(step, "completed", "")

    def fail(self, step: Step, reason: str) -> None:
        """in_progress → failed, with the reason in words and the error's code."""
        with self.writing():
            self.end(step, "failed", reason)

    def revert(self, step: Step, reason: str) -> None:
        """in_progress, completed or failed → reverted: what it wrote has been put back."""
        with self.writing():
            self.end(step, "reverted", reason)

    def unstart(self, step: Step) -> None:
        """in_progress → pending: recovery saw that nothing had been written."""
        with self.writing() as db, self._moving(step, "pending"):
            db.execute("UPDATE step SET status = 'pending' WHERE id = ?", (step.id,))

    def skip(self, step: Step, reason: str) -> None:
        """pending → skipped: what needs it may run. A gate, the record and the approval are never skipped."""
        with self.writing():
            self.end(step, "skipped", reason)

    def cancel(self, step: Step, reason: str) -> None:
        """pending or failed → cancelled: what needs it is blocked."""
        with self.writing():
            self.end(step, "cancelled", reason)

    def end(self, step: Step, status: str, reason: str) -> None:
        """The move itself, inside the caller's transaction."""
        with self._moving(step, status):
            self.db.execute(
                "UPDATE step SET status = ?, reason = ?, ended_ns = ? WHERE id = ?",
                (status, reason, time.time_ns(), step.id),
            )

    @contextmanager
    def _moving(self, step: Step, becomes: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.IntegrityError as error:
            raise refusal(error, f"Step {step.name} was not made {becomes}", self._accepted(step)) from error

    def _accepted(self, step: Step) -> str:
        """The call that the store would take for this step now."""
        row = self.db.execute("SELECT status FROM step WHERE id = ?", (step.id,)).fetchone()
        calls = {
            "pending": f"uncork plan cancel {step.name} --why '...', or let the engine start it",
            "in_progress": "let it end, or uncork plan abort --why '...'",
            "completed": "uncork rollback (an applied change), or uncork run (a new plan)",
            "failed": f"uncork plan cancel {step.name} --why '...', or uncork run (a new plan)",
        }
        return calls.get(
            row["status"] if row else "", "uncork run (a new plan; an ended step stays as it is)"
        )


def add_step(db: sqlite3.Connection, plan: str, step: StepDraft, position: int) -> int:
    """Store one step, its needs and its changes inside the caller's transaction; its id."""
    ids = {row["name"]: row["id"] for row in db.execute("SELECT id, name FROM step WHERE plan = ?", (plan,))}
    cursor = db.execute(
        "INSERT INTO step(plan, position, name, kind, title, why, priority, policy, digest, redo_of)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(plan, position, step.name, step.kind.value, step.title, step.why, step.priority.value),
            *(step.policy, step_digest(step.changes), ids.get(step.redo_of or "")),
        ),
    )
    made = cursor.lastrowid or 0
    for need in step.needs:
        if need.step not in ids:
            raise NotFound(
                f"Step {step.name} needs {need.step}, which is not in the plan.", next="uncork plan"
            )
        db.execute("INSERT INTO step_need VALUES (?, ?, ?)", (made, ids[need.step], need.condition))
    for ord, change in enumerate(step.changes):
        db.execute("INSERT INTO change VALUES (?, ?, ?)", (made, ord, msgspec.json.encode(change).decode()))
    return made


def find(plan: Plan, name: str) -> Step:
    """A step by its name or its number in the list. Raises `NotFound` naming those there are."""
    for step in plan.steps:
        if name in (step.name, str(step.position)):
            return step
    names = ", ".join(step.name for step in plan.steps)
    raise NotFound(f"Plan {plan.id} has no step {name!r}. It has: {names}.", next="uncork plan")


def statements(script: str) -> Iterator[str]:
    """The statements of an SQL script, one at a time (executescript would commit in between)."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""


@contextmanager
def refusing() -> Iterator[None]:
    """Turn what SQLite raises into the error that a person sees."""
    try:
        yield
    except sqlite3.Error as error:
        raise refusal(error, "Nothing was stored", "uncork plan") from error


def refusal(error: sqlite3.Error, what: str, accepted: str) -> UncorkError:
    """The error for what SQLite said; `accepted` is the call to make instead where the code names none."""
    said = str(error)
    code, colon, sentence = said.partition(": ")
    if isinstance(error, sqlite3.IntegrityError):
        if "one_writer" in said or "step.writing" in said:
            return Locked(f"{what}: another step is writing to this host.", next="uncork plan")
        if "one_open_plan" in said:
            return IllegalMove(f"{what}: a host has one open plan.", next="uncork plan abort --why '...'")
        if not colon or " " in code:
            return IllegalMove(f"{what}: {said}.", next=accepted)
        return _REFUSALS.get(code, IllegalMove)(f"{what}: {sentence}.", next=_NEXT.get(code, accepted))
    if isinstance(error, sqlite3.OperationalError) and "locked" in said:
        return Locked(f"{what}: the database is held by another uncork.", next="try again in a moment")
    if isinstance(error, sqlite3.OperationalError) and "no such table" not in said:
        return unwritable(error)
    return Corrupt(f"{what}: the database says {said!r}.", next="uncork journal verify")


def unwritable(error: Exception) -> StateUnwritable:
    """The refusal for a state folder that cannot be written."""
    return StateUnwritable(
        f"The state folder cannot be written ({error}); nothing was attempted on the host.",
        next="free some space there, or set UNCORK_STATE to another folder",
    )
