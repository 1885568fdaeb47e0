"""The store: what a second process sees, what is derived, who may consent, and disks that do not take it."""

import json
import os
import sqlite3
import subprocess
import sys

import msgspec
import pytest
from plans import apply_step, new_plan, pass_step, until_approved

from uncork.errors import Corrupt, IllegalMove, Locked, NotApproved, NotFound, StateUnwritable
from uncork.model.plan import PlannedChange
from uncork.plan.approvals import approve, void
from uncork.plan.store import Store, find
from uncork.plan.todo import todo

DIRTY = PlannedChange("sysctl", "vm.dirty_ratio", "10", before="20")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path) as opened:
        yield opened


def test_another_process_reads_the_plan_while_a_step_runs(store, tmp_path):
    plan = new_plan(store)
    store.start(find(plan, "explore"))
    code = (
        "import sys, pathlib; from uncork.plan.store import Store\n"
        "print(Store(pathlib.Path(sys.argv[1]), create=False).read().steps[0].shown)"
    )
    seen = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)

    assert seen.stdout == "in_progress\n"


def test_a_step_whose_process_is_gone_is_shown_as_interrupted(store, tmp_path):
    new_plan(store)
    pid = os.fork()
    if pid == 0:
        with Store(tmp_path) as mine:
            mine.start(find(mine.read(), "explore"))
        os._exit(0)
    os.waitpid(pid, 0)

    step = find(store.read(), "explore")
    assert (step.status, step.shown) == ("in_progress", "interrupted")


def test_reading_a_plan_is_one_consistent_moment(store, tmp_path):
    plan = new_plan(store)
    with Store(tmp_path) as other:
        store.db.execute("BEGIN")
        store.db.execute("SELECT 1 FROM plan").fetchone()
        pass_step(other, plan, "explore")
        from uncork.plan.reading import read_plan

        assert read_plan(store.db, None).steps[0].status == "pending"
        store.db.execute("COMMIT")
    assert store.read().steps[0].status == "completed"


def test_a_host_has_one_open_plan(store):
    plan = new_plan(store)
    with pytest.raises(IllegalMove) as refused:
        new_plan(store)

    assert plan.id in refused.value.says
    assert "abort" in refused.value.next


def test_completed_needs_the_newest_evidence_of_this_attempt_to_pass(store):
    plan = new_plan(store)
    step = find(plan, "explore")
    store.start(step)
    store.evidence(step, "pass", "first look")
    store.evidence(step, "fail", "second look")
    with pytest.raises(IllegalMove, match="newest verdict is pass"):
        store.end(step, "completed", "")
    store.fail(step, "it failed")

    store.start(step)
    with pytest.raises(IllegalMove, match="newest verdict is pass"):
        store.end(step, "completed", "")


def test_only_one_step_writes_at_a_time(store):
    plan = until_approved(store, new_plan(store, apply_step(), apply_step("apply-two", DIRTY)))
    store.start(find(plan, "apply-kernel-sysctl"))

    with pytest.raises(Locked):
        store.start(find(plan, "apply-two"))


def test_a_benchmark_waits_for_the_gate_and_the_confirm(store):
    plan = until_approved(store, new_plan(store))
    pass_step(store, plan, "apply-kernel-sysctl")
    gate = find(plan, "gate")
    store.start(gate)
    store.evidence(gate, "fail", "pair 0-3 corrupts")
    store.fail(gate, "gate-failed: pair 0-3 corrupts")

    assert find(store.read(), "confirm").shown == "blocked"
    with pytest.raises(IllegalMove):
        store.start(find(plan, "benchmark"))


def test_nothing_is_written_before_the_record_is_sealed(store):
    plan = new_plan(store)
    for name in ("explore", "rank", "gate-before", "benchmark-before", "document"):
        pass_step(store, plan, name)
    approve(store, plan, store.read().digest, by="me", how="test")
    pass_step(store, plan, "approve")

    with pytest.raises(IllegalMove, match="before the record is on disk") as refused:
        store.start(find(plan, "apply-kernel-sysctl"))
    assert refused.value.next.startswith("uncork run")


def test_the_record_is_not_sealed_again_once_a_change_has_begun(store):
    plan = until_approved(store, new_plan(store))
    pass_step(store, plan, "apply-kernel-sysctl")

    with pytest.raises(IllegalMove, match="sealed"):
        store.seal_record(plan.id, "f" * 64)


@pytest.mark.parametrize("digest", ["", "0" * 8, "0" * 64])
def test_consent_names_the_changes_exactly(store, digest):
    plan = new_plan(store)
    with pytest.raises(NotApproved) as refused:
        approve(store, plan, digest, by="me", how="test")

    assert plan.digest[:8] in refused.value.next


def test_a_short_digest_is_no_consent(store):
    plan = new_plan(store)
    with pytest.raises(NotApproved):
        approve(store, plan, plan.digest[:7], by="me", how="test")


def test_the_digest_covers_targets_before_values_wanted_values_and_owners(store):
    base = PlannedChange("sysctl", "vm.swappiness", "1", before="60")
    other = [
        msgspec.structs.replace(base, **change)
        for change in (
            {"target": "vm.dirty_ratio"},
            {"want": "2"},
            {"before": "61"},
            {"knob": "sysfs"},
            {"owners": ("tuned",)},
        )
    ]
    from uncork.plan.digest import step_digest

    assert len({step_digest([change]) for change in (base, *other)}) == 6


def test_a_void_approval_stays_void(store):
    plan = until_approved(store, new_plan(store))
    assert void(store, plan.id, "drifted: vm.swappiness is 10") == 1
    with pytest.raises(NotApproved):
        store.start(find(plan, "apply-kernel-sysctl"))
    with pytest.raises(sqlite3.IntegrityError, match="stays void"):
        store.db.execute("UPDATE approval SET voided = NULL")


def test_a_database_of_a_newer_uncork_is_not_touched(tmp_path):
    with Store(tmp_path) as store:
        store.db.execute("PRAGMA user_version = 99")
    with pytest.raises(Corrupt, match="newer uncork"):
        Store(tmp_path)


def test_no_plan_yet_says_how_to_get_one(tmp_path):
    with pytest.raises(NotFound) as refused:
        Store(tmp_path, create=False)

    assert refused.value.next == "uncork run"


def test_a_folder_that_cannot_be_written_is_a_refusal(tmp_path):
    with pytest.raises(StateUnwritable):
        Store(tmp_path / "missing")


def test_every_commit_is_synced_and_the_file_is_private(store):
    assert store.db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    assert store.db.execute("PRAGMA synchronous").fetchone()[0] == 2
    assert store.path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_database_is_corrupt_and_not_a_traceback(tmp_path):
    (tmp_path / "state.db").write_bytes(b"this is no database, and long enough to be looked at" * 100)
    with pytest.raises(Corrupt):
        Store(tmp_path)


def test_the_todo_list_has_the_four_words_and_says_what_is_wrong(store):
    plan = until_approved(store, new_plan(store, apply_step(), apply_step("apply-two", DIRTY)))
    failing = find(plan, "apply-kernel-sysctl")
    store.start(failing)
    store.fail(failing, "bad-value: no")
    store.skip(find(plan, "apply-two"), "not now")
    store.cancel(find(plan, "gate"), "not now")
    lines = {line.content: (line.status, line.priority) for line in todo(store.read())}

    assert lines["failed: Set vm.swappiness to 1"] == ("pending", "high")
    assert lines["skipped: Set vm.swappiness to 1"] == ("cancelled", "high")
    assert lines["blocked: Confirm the changes before they revert"] == ("pending", "high")
    assert lines["Look at the host"] == ("completed", "low")
    assert set(json.loads(msgspec.json.encode(todo(store.read())))[0]) == {"content", "status", "priority"}
