"""The plan's rules hold whatever is asked of it, by its own verbs or by raw SQL."""

import itertools
import sqlite3
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from plans import apply_step, new_plan

from uncork.errors import UncorkError
from uncork.model.plan import PlannedChange
from uncork.plan import directives
from uncork.plan.approvals import approve, void
from uncork.plan.store import Store, find

LEGAL = {
    *(("pending", "in_progress"), ("pending", "skipped"), ("pending", "cancelled")),
    *(("in_progress", "completed"), ("in_progress", "failed"), ("in_progress", "reverted")),
    *(("in_progress", "pending"), ("failed", "in_progress"), ("failed", "reverted")),
    *(("failed", "cancelled"), ("completed", "reverted")),
}
STATUSES = ("pending", "in_progress", "completed", "failed", "reverted", "skipped", "cancelled")
MEMORY = Path("/dev/shm")
NAMES = (
    *("explore", "rank", "gate-before", "benchmark-before", "document", "approve"),
    *("apply-a", "apply-b", "gate", "confirm", "benchmark", "compare", "decide", "close"),
)
names = st.sampled_from(NAMES)
# Steps near the front are reached more often if they are asked for more often.
likely = st.one_of(st.sampled_from(NAMES[:9]), names)


class PlanMachine(RuleBasedStateMachine):
    """Random calls on a real store; the invariants are checked from outside, on what is stored."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self.store = Store(Path(self.folder.name))
        self.plan = new_plan(
            self.store,
            apply_step("apply-a", PlannedChange("sysctl", "a", "1", before="0")),
            apply_step("apply-b", PlannedChange("sysctl", "b", "1", before="0")),
        ).id
        self.last = self.look()

    def teardown(self):
        self.store.close()
        self.folder.cleanup()

    def look(self):
        """All that is stored, as plain rows."""
        tables = ("step", "evidence", "directive", "approval", "plan", "lease", "approval_step", "step_need")
        return {t: [dict(row) for row in self.store.db.execute(f"SELECT * FROM {t}")] for t in tables}

    def ask(self, call, *args, **more):
        """A call may be refused, but only with the call that would be accepted."""
        try:
            call(*args, **more)
        except UncorkError as refused:
            assert refused.next, refused.says

    def step(self, name):
        return find(self.store.read(self.plan), name)

    @rule(name=likely)
    def start(self, name):
        self.ask(self.store.start, self.step(name))

    @rule(name=likely)
    def complete(self, name):
        self.ask(self.store.complete, self.step(name), "well")

    @rule(name=names)
    def run(self, name):
        """The usual way: started and completed."""
        self.ask(self.store.start, self.step(name))
        self.rules_hold()
        self.ask(self.store.complete, self.step(name), "well")

    @rule()
    def run_next(self):
        """What the engine does: the first step that is ready."""
        ready = [s for s in self.store.read(self.plan).steps if s.shown == "ready"]
        if ready:
            self.run(ready[0].name)

    @rule(name=names, verdict=st.sampled_from(["pass", "fail", "inconclusive"]))
    def evidence(self, name, verdict):
        self.ask(self.store.evidence, self.step(name), verdict, "seen")

    @rule(name=names, how=st.sampled_from(["fail", "revert", "skip", "cancel"]))
    def end(self, name, how):
        self.ask(getattr(self.store, how), self.step(name), "for a reason")

    @rule(name=names)
    def unstart(self, name):
        self.ask(self.store.unstart, self.step(name))

    @rule()
    def seal(self):
        self.ask(self.store.seal_record, self.plan, "1" * 64)

    @rule()
    def approve(self):
        plan = self.store.read(self.plan)
        self.ask(approve, self.store, plan, plan.digest, by="me", how="test")

    @rule()
    def void(self):
        self.ask(void, self.store, self.plan, "drift")

    @rule(op=st.sampled_from(["pause", "resume", "resume"]), old=st.booleans())
    def direct(self, op, old):
        plan = self.store.read(self.plan)
        self.ask(
            getattr(directives, op),
            *(self.store, plan),
            words="so be it",
            by="me",
            expected_revision=plan.revision - old,
        )

    @rule(name=names, op=st.sampled_from(["skip", "cancel"]))
    def direct_step(self, name, op):
        plan = self.store.read(self.plan)
        self.ask(getattr(directives, op), self.store, plan, name, words="not now", by="me")

    @rule(value=st.sampled_from("23"))
    def edit(self, value):
        plan = self.store.read(self.plan)
        self.ask(directives.edit, self.store, plan, "apply-b", words="w", by="me", want={"b": value})

    @rule(name=names, before=names)
    def move(self, name, before):
        plan = self.store.read(self.plan)
        self.ask(directives.move, self.store, plan, name, before=before, words="first", by="me")

    @rule(keep=st.sets(names))
    @precondition(lambda self: len(self.look()["directive"]) > 3)
    def replan(self, keep):
        plan = self.store.read(self.plan)
        dispose = {name: "keep" if name in keep else "cancel" for name in NAMES if name in keep}
        self.ask(directives.replan, self.store, plan, (), dispose, words="anew", by="me")

    @rule(name=names, status=st.sampled_from(STATUSES), reason=st.sampled_from(["", "because"]))
    def raw_status(self, name, status, reason):
        """Another door, which knows nothing of the rules."""
        self.raw("UPDATE step SET status = ?, reason = ? WHERE name = ?", status, reason, name)

    @rule(
        sql=st.sampled_from(
            [
                "DELETE FROM step",
                "DELETE FROM evidence",
                "DELETE FROM directive",
                "DELETE FROM approval",
                "DELETE FROM plan",
                "DELETE FROM lease",
                "DELETE FROM step_need",
                "UPDATE evidence SET verdict = 'pass'",
                "UPDATE directive SET words = ''",
                "UPDATE approval SET digest = digest || ''",
                "UPDATE approval_step SET used_attempt = NULL",
                "UPDATE step SET kind = 'rank' WHERE kind = 'gate'",
                "UPDATE step SET writing = 1",
                "UPDATE plan SET revision = 1 WHERE revision > 1",
                "INSERT OR REPLACE INTO step SELECT * FROM step",
                "INSERT OR REPLACE INTO evidence SELECT * FROM evidence",
                "UPDATE step SET attempt = 7",
            ]
        )
    )
    def raw(self, sql, *values):
        try:
            self.store.db.execute(sql, values)
        except sqlite3.IntegrityError:
            pass

    @invariant()
    def rules_hold(self):
        was, now = self.last, self.look()
        steps = {row["id"]: row for row in now["step"]}
        for row in was["step"]:
            old, new = row["status"], steps[row["id"]]["status"]
            assert old == new or (old, new) in LEGAL, f"{row['name']}: {old} -> {new}"
            assert all(row[k] == steps[row["id"]][k] for k in ("name", "kind", "plan"))
        for row in now["step"]:
            self.one_step_holds(row, now, steps, was)
        writers = [
            r for r in now["step"] if r["status"] == "in_progress" and r["kind"] in ("apply", "decide")
        ]
        assert len(writers) <= 1
        running = {row["id"] for row in now["step"] if row["status"] == "in_progress"}
        assert running <= {row["step"] for row in now["lease"]}
        for table in ("evidence", "directive"):
            assert now[table][: len(was[table])] == was[table]
        assert len(now["approval"]) >= len(was["approval"])
        assert now["step_need"][: len(was["step_need"])] == was["step_need"]
        assert now["plan"][0]["revision"] >= was["plan"][0]["revision"]
        self.last = now

    def one_step_holds(self, row, now, steps, was):
        status, before = row["status"], next((r for r in was["step"] if r["id"] == row["id"]), None)
        if status == "skipped":
            assert row["kind"] not in ("gate", "document", "approve", "confirm")
        if status in ("failed", "reverted", "skipped", "cancelled"):
            assert row["reason"]
        seen = [e for e in now["evidence"] if e["step"] == row["id"] and e["attempt"] == row["attempt"]]
        if status == "completed":
            assert seen[-1]["verdict"] == "pass"
        if status in ("in_progress", "completed") and before and before["attempt"] != row["attempt"]:
            self.just_started(row, now, steps, was)

    def just_started(self, row, now, steps, was):
        """What had to be so at the moment of the start."""
        old = {r["id"]: r["status"] for r in was["step"]}
        for need in (n for n in now["step_need"] if n["step"] == row["id"]):
            done = ("completed", "skipped") + (
                ("failed", "reverted", "cancelled") if need["condition"] == "ended" else ()
            )
            assert old[need["needs"]] in done
        assert was["plan"][0]["state"] == "active"
        if row["kind"] == "apply":
            assert now["plan"][0]["record_sha256"]
            valid = {a["id"] for a in now["approval"] if a["voided"] is None}
            used = [u for u in now["approval_step"] if u["step"] == row["id"] and u["approval"] in valid]
            assert [u["digest"] for u in used if u["used_attempt"] == row["attempt"]] == [row["digest"]]


TestPlanMachine = PlanMachine.TestCase
TestPlanMachine.settings = settings(
    max_examples=15, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.slow
@pytest.mark.timeout(900)
class TestPlanMachineLong(PlanMachine.TestCase):
    """The same for longer."""

    settings = settings(
        max_examples=75, stateful_step_count=100, deadline=None, suppress_health_check=list(HealthCheck)
    )


def test_the_table_of_moves_is_the_eleven_that_are_written_down(tmp_path):
    with Store(tmp_path) as store:
        rows = {(row["was"], row["becomes"]) for row in store.db.execute("SELECT * FROM move")}

    assert rows == LEGAL
    assert len(rows) == 11


@pytest.mark.parametrize(("was", "becomes"), list(itertools.permutations(STATUSES, 2)))
def test_each_move_that_is_not_in_the_table_is_refused_by_the_schema(tmp_path, was, becomes):
    """With every other guard satisfied: an explore step needs nothing and has its evidence."""
    with Store(tmp_path) as store:
        plan = new_plan(store)
        step = find(plan, "explore")
        if was in ("in_progress", "completed", "failed"):
            store.start(step)
            store.evidence(step, "pass", "seen")
        if was in ("completed", "failed", "skipped", "cancelled"):
            store.end(step, was, "because")
        if was == "reverted":
            store.start(step)
            store.revert(step, "because")
        sql = "UPDATE step SET status = ?, reason = 'r', started_ns = 1, attempt = attempt + ? WHERE id = ?"
        starts = becomes == "in_progress"
        if starts and was != "in_progress":
            store.db.execute("INSERT OR REPLACE INTO lease VALUES (?, 'b', 1, 1, 1)", (step.id,))
        try:
            store.db.execute(sql, (becomes, int(starts), step.id))
            taken = True
        except sqlite3.IntegrityError:
            taken = False

    assert taken == ((was, becomes) in LEGAL)
