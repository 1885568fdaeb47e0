"""Apply one group of changes under a hold: all intents durable, revert timer armed, then write and read back.

The order is the promise: lock, look for other owners, compare with what was approved, make the hold and every
intent durable, arm the timer, and only then write.
"""

import errno
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from uncork.apply import chain, revert
from uncork.apply.alone import alone
from uncork.apply.child import Child, Hung
from uncork.apply.guard import NotArmed, arm
from uncork.apply.outcome import ERRORS, Target, error_of, judge, undo_failed, words
from uncork.errors import (
    Busy,
    ChangeFailed,
    Conflict,
    Drifted,
    Refused,
    StateUnwritable,
    Stuck,
    UncorkError,
)
from uncork.knobs import KNOBS, Knob, owners
from uncork.model.plan import Kind, PlannedChange, Step
from uncork.model.unknown import Unknown
from uncork.plan import approvals, database
from uncork.plan.directives import asked_to_stop
from uncork.plan.store import Store, refusing
from uncork.state import patience

HOLD_S = 300.0
HOLD_RISKY_S = 600.0  # what can cost access to the host: more time to notice
CALL_LIMIT_S = 10.0 * patience()
BUSY_RETRIES = 2
BUSY_WAIT_S = 0.2

Guard = Callable[..., str]
Progress = Callable[[int, int, PlannedChange], None]


class Applied(msgspec.Struct, frozen=True):
    """A group in force under an open hold, until it is confirmed or its deadline comes."""

    txn: str
    deadline_boot_ns: int
    targets: tuple[Target, ...]


def apply_step(
    store: Store,
    step: Step,
    *,
    knobs: Mapping[str, Knob] = KNOBS,
    hold_s: float | None = None,
    actor: dict[str, Any] | None = None,
    progress: Progress = lambda done, of, change: None,
    guard: Guard = arm,
    call_limit_s: float = CALL_LIMIT_S,
) -> Applied:
    """Start the apply step, write its group, and complete it with its hold open.

    Raises a `Refused` where nothing was written (`NotApproved`, `Drifted`, `Conflict`, `Locked`,
    `StateUnwritable`), a `ChangeFailed` where the group was put back, `UndoFailed` where that failed too. In
    each case the step has ended as failed, except where the store itself refused to start it.
    """
    with alone(store.folder, wait_s=0):
        group = _Group(store, step, knobs, actor or chain.actor(), progress, guard, call_limit_s)
        try:
            with owners.remembered():  # for the child, which is forked in here and looks at every target
                group.child.start()
            store.start(step)
            try:
                return group.run(hold_s)
            except UncorkError as error:
                _fail(store, step, error)
                raise
        finally:
            group.child.close()


def _fail(store: Store, step: Step, error: UncorkError) -> None:
    try:
        if not isinstance(error, Stuck):
            store.fail(step, f"{error.code}: {error.says}")
        if isinstance(error, Drifted | Conflict):
            plan = store.db.execute("SELECT plan FROM step WHERE id = ?", (step.id,)).fetchone()["plan"]
            approvals.void(store, plan, f"{error.code}: {error.says}")
    except UncorkError:
        pass  # the error that is on its way says more; recovery will find the step


class _Group:
    """One group on its way; each method is one stage."""

    def __init__(
        self,
        store: Store,
        step: Step,
        knobs: Mapping[str, Knob],
        actor: dict[str, Any],
        progress: Progress,
        guard: Guard,
        call_limit_s: float,
    ) -> None:
        self.store, self.step, self.knobs = store, step, knobs
        self.actor, self.progress, self.guard = actor, progress, guard
        self.limit_s = call_limit_s
        self.txn = secrets.token_hex(6)
        row = store.db.execute("SELECT plan FROM step WHERE id = ?", (step.id,)).fetchone()
        self.plan: str = row["plan"]
        self.child = Child(self._serve)
        self.declared: dict[int, dict[str, Any]] = {}  # intents, and what was read back after each
        self.got: dict[int, str | None] = {}

    def run(self, hold_s: float | None) -> Applied:
        if self.step.kind != Kind.APPLY or not self.step.changes:
            raise Refused(f"Step {self.step.name} has nothing to write.", next="uncork plan")
        self._preflight()
        deadline_ns = self._declare(hold_s)
        try:
            targets = self._write_all()
            self.child.end()
            self._close(targets)
        except StateUnwritable as error:
            self._put_back_unrecorded(error)
        return Applied(self.txn, deadline_ns, tuple(targets))

    def _serve(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the child does; every call that touches the host is made there."""
        knob, target = self.knobs[request["knob"]], request["target"]
        if request["op"] == "write":
            database.reached("before-write")
            knob.write(target, request["value"])
            database.reached("after-write")
            return {}
        value = knob.read(target)
        if isinstance(value, Unknown):
            raise OSError(errno.ENOENT if value.absent else errno.EIO, value.reason, target)
        if request["op"] == "read":
            return {"value": value}
        veto = knob.veto(target, request["value"])
        return {"value": {"owned": knob.owners(target), "veto": veto, "now": value}}

    def _read(self, change: PlannedChange) -> str:
        asked = {"op": "read", "knob": change.knob, "target": change.target}
        value: str = self.child.ask(asked, self.limit_s)
        return value

    def _preflight(self) -> None:
        """Nothing is written where an owner has come, a veto speaks, or a value is not the approved one."""
        for change in self.step.changes:
            self._as_approved(change, **self._look(change))

    def _look(self, change: PlannedChange) -> dict[str, Any]:
        asked = {"op": "look", "knob": change.knob, "target": change.target, "value": change.want}
        try:
            seen: dict[str, Any] = self.child.ask(asked, self.limit_s)
        except OSError as error:
            raise Drifted(
                f"{change.target} can no longer be read ({error}); nothing was changed.", next="uncork audit"
            ) from error
        except Hung:
            raise Drifted(
                f"Reading {change.target} did not return; nothing was changed.", next="uncork audit"
            ) from None
        return seen

    def _as_approved(self, change: PlannedChange, owned: list[str], veto: str, now: str) -> None:
        came = [owner for owner in owned if owner not in change.owners]
        if came:
            raise Conflict(
                f"{change.target} is also set by {', '.join(came)}, which was not so when this was approved;"
                " nothing was changed.",
                next="uncork run (plans with it in view), or stop that service first",
            )
        if veto:
            raise Refused(f"{change.target}: {veto}; nothing was changed.", next="uncork plan")
        if change.before is None or not self.knobs[change.knob].same(change.before, now):
            raise Drifted(
                f"{change.target} is {now}, approved was a change from {change.before}; nothing was changed.",
                next="uncork run (looks again and asks again)",
            )

    def _declare(self, hold_s: float | None) -> int:
        """The hold and every intent in one durable commit, then the timer. Until then nothing is written."""
        risky = any(change.risk == "high" for change in self.step.changes)
        length_s = hold_s if hold_s is not None else HOLD_RISKY_S if risky else HOLD_S
        deadline_ns = database.boot_ns() + int(length_s * 1e9)
        with self.store.writing() as db:
            db.execute(
                "INSERT INTO hold(txn, plan, step, boot_id, deadline_boot_ns) VALUES (?, ?, ?, ?, ?)",
                (self.txn, self.plan, self.step.id, database.boot_id(), deadline_ns),
            )
            body = {"step": self.step.name, "deadline_boot_ns": deadline_ns, "actor": self.actor}
            body |= {"plan": self.plan, "digest": self.step.digest, "approved": self._consent()}
            chain.append(db, self.txn, "hold", body)
            for ord, change in enumerate(self.step.changes):
                self.declared[ord] = self._intent(change)
                chain.append(db, self.txn, "intent", self.declared[ord], ord=ord)
        self._arm(deadline_ns)
        return deadline_ns

    def _consent(self) -> dict[str, Any]:
        """Who approved this, how and which digest: the approval that the start has used."""
        row = self.store.db.execute(
            "SELECT a.id, a.digest, a.by, a.how, a.wall_ns FROM approval a JOIN approval_step u"
            " ON u.approval = a.id WHERE u.step = ? AND u.used_attempt IS NOT NULL ORDER BY a.id DESC",
            (self.step.id,),
        ).fetchone()
        return dict(row)

    def _intent(self, change: PlannedChange) -> dict[str, Any]:
        knob = self.knobs[change.knob]
        assert change.before is not None
        return {
            "knob": change.knob,
            "target": change.target,
            "before": change.before,
            "want": change.want,
            "recipe": knob.recipe(change.target),
            "by_hand": knob.undo_command(change.target, change.before),
            "actor": self.actor,
        }

    def _arm(self, deadline_ns: int) -> None:
        try:
            name = self.guard(self.store.folder, self.store.path, self.txn, deadline_ns)
        except NotArmed as error:
            self._undo(f"the revert timer could not be armed: {error}")
            raise Refused(
                f"The revert timer could not be armed ({error}); nothing was changed.", next="uncork journal"
            ) from error
        with self.store.writing() as db:
            db.execute("UPDATE hold SET guard = ? WHERE txn = ?", (name, self.txn))
            chain.append(db, self.txn, "armed", {"guard": name})

    def _write_all(self) -> list[Target]:
        targets: list[Target] = []
        for ord, change in enumerate(self.step.changes):
            if asked_to_stop(self.store, self.plan):
                self._undo("the plan was aborted")
                raise ChangeFailed("The plan was aborted; the group was put back.", next="uncork plan")
            target = self._write_one(ord, change)
            targets.append(target)
            self.progress(ord + 1, len(self.step.changes), change)
            if target.end == "failed" and not self._left_out(ord):
                self._undo(f"{target.code}: {target.says}")
                raise error_of(target)
        return targets

    def _left_out(self, ord: int) -> bool:
        """Whether the group goes on without this target, which then has its former value again."""
        if self.step.policy == "all_or_nothing":
            return False
        (outcome,) = revert.put_back([{**self.declared[ord], "got": self.got[ord]}])
        self._note(revert.ROW[outcome["end"]], {**outcome, "actor": self.actor}, ord)
        return outcome["end"] not in revert.LEFT

    def _write_one(self, ord: int, change: PlannedChange) -> Target:
        began_ns = time.monotonic_ns()
        number: int | None = None
        try:
            self._write(change)
            got = self._read(change)
        except OSError as error:
            kind, number = ERRORS.get(error.errno or 0, ChangeFailed), error.errno
            target = Target(change, "failed", self._last_look(change), kind.code, words(error))
        except Hung:
            self._stuck(ord, change)
        else:
            target = judge(self.knobs[change.knob], change, got)
        self.got[ord] = target.got
        body = {"end": target.end, "got": target.got, "code": target.code, "says": target.says}
        took_ms = (time.monotonic_ns() - began_ns) / 1e6
        self._note(
            "failed" if target.end == "failed" else "applied",
            {**body, "target": change.target, "errno": number, "took_ms": took_ms},
            ord,
        )
        return target

    def _write(self, change: PlannedChange) -> None:
        asked = {"op": "write", "knob": change.knob, "target": change.target, "value": change.want}
        for retry in range(BUSY_RETRIES + 1):
            try:
                self.child.ask(asked, self.limit_s)
                return
            except OSError as error:
                if ERRORS.get(error.errno or 0) is not Busy or retry == BUSY_RETRIES:
                    raise
                time.sleep(BUSY_WAIT_S * (retry + 1))

    def _last_look(self, change: PlannedChange) -> str | None:
        try:
            return self._read(change)
        except (OSError, Hung):
            return None

    def _note(self, kind: str, body: dict[str, Any], ord: int) -> None:
        with self.store.writing() as db:
            chain.append(db, self.txn, kind, body, ord=ord)

    def _put_back_unrecorded(self, error: StateUnwritable) -> NoReturn:
        """The journal stopped taking rows after the first write: undo by the intents, which are durable."""
        known = [{**intent, "got": self.got.get(ord)} for ord, intent in self.declared.items()]
        ends = revert.put_back(known)
        bad = [end for end in ends if end["end"] in revert.LEFT]
        if bad:
            raise undo_failed("The journal can no longer be written", bad) from error
        raise StateUnwritable(
            "The journal can no longer be written; what this group had written was put back.", next=error.next
        ) from error

    def _stuck(self, ord: int, change: PlannedChange) -> NoReturn:
        """Leave the child in its call, put back the others, and let nothing more start on this host."""
        with self.store.writing() as db:
            chain.append(db, self.txn, "stuck", {"target": change.target, "pid": self.child.pid}, ord=ord)
        with refusing():
            revert.undo_others(self.store.db, self.txn, ord, actor=self.actor)
        self.store.freeze(self.plan)
        raise Stuck(
            f"The write to {change.target} has not returned within {self.limit_s:g} s. The rest of the group was"
            " put back and the plan is frozen.",
            next=f"look at process {self.child.pid} (cat /proc/{self.child.pid}/stack), then uncork rollback",
        )

    def _undo(self, why: str) -> None:
        with refusing():
            outcomes = revert.undo(self.store.db, self.txn, why=why, actor=self.actor)
        bad = [outcome for outcome in outcomes or () if outcome["end"] in revert.LEFT]
        if bad:
            raise undo_failed(why, bad)

    def _close(self, targets: list[Target]) -> None:
        failed = [target for target in targets if target.end == "failed"]
        if len(failed) == len(targets):
            self._undo("no target took the change")
            raise error_of(failed[0])
        summary = f"{len(targets) - len(failed)} of {len(targets)} read back as wanted"
        if failed:
            summary += "; not: " + ", ".join(f"{t.change.target} ({t.code})" for t in failed)
        self.store.complete(self.step, summary, artefact=f"txn:{self.txn}")
