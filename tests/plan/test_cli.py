"""The plan's verbs on the command line: what a person and a program see, and how each ends."""

import json
from pathlib import Path

import pytest
from plans import new_plan, pass_step, until_approved
from typer.testing import CliRunner

from uncork.cli.main import app
from uncork.errors import BadInput, GateClosed, IllegalMove, NotApproved, NotFound, Refused, StaleRevision
from uncork.plan.database import boot_id, boot_ns
from uncork.plan.store import Store, find


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))
    monkeypatch.setenv("NO_COLOR", "1")
    with Store(tmp_path) as opened:
        yield opened


def uncork(*words):
    return CliRunner().invoke(app, list(words))


def fits(text):
    return [line for line in text.splitlines() if len(line) > 80] == []


def test_without_a_plan_each_verb_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("UNCORK_STATE", str(tmp_path))
    for words in (["plan"], ["approve"], ["hold"], ["journal"], ["journal", "verify"], ["persist"]):
        error = uncork(*words).exception
        assert isinstance(error, NotFound)
        assert error.next == "uncork run"
    done = uncork("rollback")
    assert (done.exit_code, done.stdout) == (0, "Nothing to undo: uncork has changed nothing here.\n")


def test_the_plan_fits_80_columns_and_ends_with_what_to_do(store):
    plan = new_plan(store)
    for name in ("explore", "rank", "gate-before", "benchmark-before", "document"):
        pass_step(store, plan, name)
    shown = uncork("plan").stdout

    assert fits(shown)
    assert all(step.name in shown for step in plan.steps)
    assert "vm.swappiness: 60 -> 1" in shown
    assert shown.endswith(f"next: uncork approve {plan.digest[:8]}\n")


def test_programs_get_the_plan_and_the_todo_list_as_json(store):
    plan = new_plan(store)
    whole, todo = json.loads(uncork("plan", "--json").stdout), json.loads(uncork("plan", "--todo").stdout)

    assert [step["name"] for step in whole["steps"]] == [step.name for step in plan.steps]
    assert whole["steps"][0]["shown"] == "ready"
    assert [set(line) for line in todo] == [{"content", "status", "priority"}] * len(plan.steps)


def test_a_directive_needs_words_and_keeps_them(store):
    new_plan(store)
    assert uncork("plan", "pause").exit_code == 2
    assert (
        uncork("plan", "pause", "--why", "the nightly job")
        .stdout.splitlines()[-1]
        .startswith("next: uncork plan resume")
    )
    (said,) = store.read().directives
    assert (said.words, said.op) == ("the nightly job", "pause")
    assert "human" in said.by


def test_each_directive_reaches_the_plan(store):
    new_plan(store)
    uncork("plan", "skip", "benchmark-before", "--why", "no time")
    uncork("plan", "cancel", "compare", "--why", "no baseline")
    uncork("plan", "edit", "gate", "--title", "Verify well", "--why", "clearer")
    uncork("plan", "edit", "apply-kernel-sysctl", "--want", "vm.swappiness=10", "--why", "1 is harsh")
    plan = store.read()

    assert plan.revision == 5
    assert find(plan, "benchmark-before").reason == "no time"
    assert find(plan, "compare").status == "cancelled"
    assert find(plan, "gate").title == "Verify well"
    assert find(plan, "apply-kernel-sysctl").changes[0].want == "10"


def test_refusals_of_directives_are_errors_with_a_way_on(store):
    new_plan(store)
    for words, error in (
        (["plan", "skip", "gate", "--why", "w"], IllegalMove),
        (["plan", "skip", "nonsense", "--why", "w"], NotFound),
        (["plan", "resume", "--why", "w"], IllegalMove),
        (["plan", "pause", "--why", "w", "--revision", "7"], StaleRevision),
        (["plan", "move", "gate", "--before", "explore", "--why", "w"], IllegalMove),
        (["plan", "replan", "--why", "w"], IllegalMove),
        (["plan", "edit", "gate", "--want", "nonsense", "--why", "w"], BadInput),
        (["plan", "add", "--knob", "x", "--target", "y", "--want", "1", "--why", "w"], BadInput),
        (["approve", "00000000"], NotApproved),
        (["hold", "confirm"], IllegalMove),
        (["persist"], Refused),
    ):
        refused = uncork(*words).exception
        assert type(refused) is error, words
        assert refused.next


@pytest.mark.skipif(not Path("/proc/sys/vm/swappiness").exists(), reason="no /proc/sys here")
def test_a_person_adds_a_change_of_their_own(store):
    new_plan(store)
    now = Path("/proc/sys/vm/swappiness").read_text(encoding="ascii").strip()
    want = "7" if now != "7" else "8"
    added = uncork(
        "plan", "add", "--knob", "sysctl", "--target", "vm.swappiness", "--want", want, "--why", "mine"
    )

    assert added.exception is None
    (change,) = find(store.read(), "apply-own-vm-swappiness").changes
    assert (change.before, change.want) == (now, want)


def test_approving_shows_the_changes_first_and_the_exact_call(store):
    plan = new_plan(store)
    shown = uncork("approve").stdout

    assert "vm.swappiness: 60 -> 1" in shown
    assert shown.endswith(f"next: uncork approve {plan.digest[:8]}\n")
    assert store.read().approvals == ()
    assert uncork("approve", plan.digest[:8]).exit_code == 0
    assert store.read().approvals[0].how == "uncork approve"


def test_confirming_by_hand_waits_for_the_gate(store):
    plan = until_approved(store, new_plan(store))
    step = find(plan, "apply-kernel-sysctl")
    store.start(step)
    with store.writing() as db:
        db.execute(
            "INSERT INTO hold(txn, plan, step, boot_id, deadline_boot_ns) VALUES ('t', ?, ?, ?, ?)",
            (plan.id, step.id, boot_id(), boot_ns() + 10**12),
        )
    store.complete(step, "1 of 1")

    assert "reverts in" in uncork("hold").stdout
    assert isinstance(uncork("hold", "confirm").exception, GateClosed)
    assert "reverts in" in uncork("hold", "extend", "--minutes", "600").stdout
    assert store.read().holds[0].deadline_boot_ns > boot_ns() + 500 * 60 * 10**9
    assert uncork("hold", "confirm", "--without-gate").exception is None
    assert store.read().holds[0].state == "confirmed"
    assert "without the gate" in uncork("journal").stdout


def test_watching_ends_with_the_plan(store):
    new_plan(store)
    uncork("plan", "abort", "--why", "enough")
    shown = uncork("plan", "--watch").stdout

    assert "aborted" in shown
    assert shown.endswith("next: uncork run (looks again)\n")


def test_an_empty_journal_is_intact_and_says_so(store):
    assert uncork("journal").stdout == "The journal is empty: nothing was changed.\n"
    assert uncork("journal", "verify").stdout.startswith("0 rows, chain intact")
    assert json.loads(uncork("journal", "verify", "--json").stdout)["rows"] == 0


def test_control_characters_of_a_host_do_not_reach_the_terminal(store):
    from plans import apply_step

    from uncork.model.plan import PlannedChange

    new_plan(store, apply_step("apply-x", PlannedChange("sysctl", "a\x1b[31mb", "1", before="\x07")))

    assert "\x1b" not in uncork("plan").stdout
    assert "\x1b" not in uncork("approve").stdout


def recorded(store):
    """A plan with a sealed record whose footer names the journal's head."""
    from uncork.apply import chain
    from uncork.loop.run import artefacts
    from uncork.record import seal

    plan = new_plan(store)
    with store.writing() as db:
        chain.append(db, "t", "hold", {"step": "x"})
        chain.append(db, "t", "undo", {"why": "x"})
    path = artefacts(store.folder, plan.id) / seal.NAME
    store.seal_record(plan.id, seal.seal(path, "# sealed\n"))
    seal.finish(path, "# finished\n\n" + chain.footer(store.db))
    return path


def test_a_record_is_checked_with_the_journal(store):
    recorded(store)

    assert "1 records agree" in uncork("journal", "verify").stdout


def test_a_journal_whose_end_was_cut_off_is_found_by_the_record(store):
    recorded(store)
    store.db.execute("DROP TRIGGER journal_kept")
    store.db.execute("DELETE FROM journal WHERE seq = 2")

    refused = uncork("journal", "verify").exception
    assert "row 2 is missing" in refused.says
    assert refused.exit == 40


def test_a_record_whose_sealed_part_was_edited_is_found(store):
    path = recorded(store)
    path.write_text(path.read_text(encoding="utf-8").replace("# sealed", "# edited"), encoding="utf-8")

    assert "is not what was sealed" in uncork("journal", "verify").exception.says
