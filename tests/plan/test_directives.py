"""A person changes their mind in the middle of a plan, in their own words, and nothing is lost."""

import pytest
from plans import apply_step, new_plan, pass_step, until_approved

from uncork.errors import IllegalMove, NotApproved, NotFound, StaleRevision
from uncork.model.plan import Kind, Need, PlannedChange, StepDraft
from uncork.plan import directives
from uncork.plan.approvals import approve, approved
from uncork.plan.store import Store, find

SAY = {"words": "wait, the nightly job runs", "by": "alice"}
DIRTY = PlannedChange("sysctl", "vm.dirty_ratio", "10", before="20")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path) as opened:
        yield opened


def own(name="apply-own"):
    return StepDraft(name, Kind.APPLY, "Set vm.dirty_ratio", needs=(Need("approve"),), changes=(DIRTY,))


def test_the_words_are_kept_as_they_were_said(store):
    plan = directives.pause(store, new_plan(store), words="halt!  ünd jetzt\n nicht", by="bob on tty3")

    (said,) = plan.directives
    assert (said.words, said.by, said.outcome) == ("halt!  ünd jetzt\n nicht", "bob on tty3", "paused")


def test_a_paused_plan_starts_nothing_and_lets_what_runs_end(store):
    plan = new_plan(store)
    running = find(plan, "explore")
    store.start(running)
    plan = directives.pause(store, plan, **SAY)
    store.complete(running, "seen")

    with pytest.raises(IllegalMove) as refused:
        store.start(find(plan, "rank"))
    assert "uncork plan resume" in refused.value.next

    plan = directives.resume(store, plan, **SAY)
    store.start(find(plan, "rank"))


def test_abort_cancels_all_that_is_pending_and_keeps_what_was_done(store):
    plan = new_plan(store)
    pass_step(store, plan, "explore")
    plan = directives.abort(store, plan, **SAY)

    assert plan.state == "aborted"
    assert find(plan, "explore").status == "completed"
    assert {step.status for step in plan.steps[1:]} == {"cancelled"}
    assert directives.asked_to_stop(store, plan.id)
    new_plan(store)  # the host is free for another


@pytest.mark.parametrize("name", ["gate", "gate-before", "document", "approve", "confirm"])
def test_what_others_rest_on_is_never_skipped_but_can_be_cancelled(store, name):
    plan = new_plan(store)
    with pytest.raises(IllegalMove) as refused:
        directives.skip(store, plan, name, **SAY)
    assert "uncork plan cancel" in refused.value.next

    plan = directives.cancel(store, store.read(), name, **SAY)
    assert find(plan, name).status == "cancelled"


def test_skipping_lets_what_needs_it_run_and_cancelling_blocks_it(store):
    plan = new_plan(store)
    plan = directives.skip(store, plan, "explore", **SAY)
    assert find(plan, "rank").shown == "ready"

    plan = directives.cancel(store, plan, "rank", **SAY)
    assert (find(plan, "gate-before").shown, find(plan, "gate-before").detail) == (
        "blocked",
        "blocked by rank",
    )


def test_a_directive_on_an_older_revision_is_refused_and_still_kept(store):
    plan = new_plan(store)
    directives.pause(store, plan, **SAY)

    with pytest.raises(StaleRevision) as refused:
        directives.abort(store, plan, words="stop it all", by="bob", expected_revision=plan.revision)

    assert "revision 2" in refused.value.says
    assert store.read().directives[-1].words == "stop it all"
    assert store.read().directives[-1].outcome.startswith("refused")
    assert store.read().state == "paused"


def test_an_added_change_comes_before_the_gate_which_waits_for_it_and_voids_the_approval(store):
    plan = until_approved(store, new_plan(store))
    assert approved(plan)
    plan = directives.add(store, plan, own(), **SAY)

    order = [step.name for step in plan.steps]
    assert order.index("apply-own") < order.index("gate")
    assert "apply-own" in [need.step for need in find(plan, "gate").needs]
    assert plan.approvals[-1].voided == "a change was added"
    with pytest.raises(NotApproved):
        store.start(find(plan, "apply-own"))

    approve(store, plan, plan.digest[:8], by="alice", how="test")
    store.start(find(plan, "apply-own"))


def test_a_change_is_not_added_once_the_gate_has_begun(store):
    plan = until_approved(store, new_plan(store))
    pass_step(store, plan, "apply-kernel-sysctl")
    store.start(find(plan, "gate"))

    with pytest.raises(IllegalMove, match="gate has begun"):
        directives.add(store, plan, own(), **SAY)
    assert "apply-own" not in [step.name for step in store.read().steps]


def test_an_edited_value_needs_a_new_approval(store):
    plan = until_approved(store, new_plan(store))
    plan = directives.edit(store, plan, "apply-kernel-sysctl", want={"vm.swappiness": "10"}, **SAY)

    assert find(plan, "apply-kernel-sysctl").changes[0].want == "10"
    assert not approved(plan)
    with pytest.raises(NotApproved):
        store.start(find(plan, "apply-kernel-sysctl"))


def test_an_edit_of_a_target_that_is_not_there_changes_nothing(store):
    plan = new_plan(store)
    with pytest.raises(NotFound):
        directives.edit(store, plan, "apply-kernel-sysctl", want={"vm.nonsense": "1"}, **SAY)

    assert store.read().revision == plan.revision


def test_what_has_begun_is_not_edited(store):
    plan = new_plan(store)
    store.start(find(plan, "explore"))

    with pytest.raises(IllegalMove) as refused:
        directives.edit(store, plan, "explore", title="Look elsewhere", **SAY)
    assert refused.value.next.startswith("uncork plan add")


def test_leaving_a_change_out_keeps_the_approval_of_the_rest(store):
    second = apply_step("apply-two", DIRTY)
    plan = until_approved(store, new_plan(store, apply_step(), second))
    plan = directives.skip(store, plan, "apply-two", **SAY)

    store.start(find(plan, "apply-kernel-sysctl"))
    assert store.read().approvals[-1].used == ("apply-kernel-sysctl",)


def test_a_step_is_not_moved_before_what_it_needs(store):
    plan = new_plan(store, apply_step(), apply_step("apply-two", DIRTY))
    plan = directives.move(store, plan, "apply-two", before="apply-kernel-sysctl", **SAY)
    names = [step.name for step in plan.steps]
    assert names.index("apply-two") < names.index("apply-kernel-sysctl")

    with pytest.raises(IllegalMove, match="needs approve"):
        directives.move(store, plan, "apply-two", before="approve", **SAY)
    with pytest.raises(IllegalMove, match="before itself"):
        directives.move(store, plan, "gate", before="gate", **SAY)
    assert [step.name for step in store.read().steps] == names


def test_a_new_plan_for_the_tail_must_say_what_becomes_of_each_open_step(store):
    plan = until_approved(store, new_plan(store))
    open_steps = [step.name for step in plan.steps if step.status == "pending"]
    with pytest.raises(IllegalMove) as refused:
        directives.replan(store, plan, (own(),), {"gate": "keep"}, **SAY)
    assert "apply-kernel-sysctl" in refused.value.says

    dispose = dict.fromkeys(open_steps, "keep") | {"apply-kernel-sysctl": "cancel"}
    plan = directives.replan(store, store.read(), (own(),), dispose, **SAY)

    assert find(plan, "apply-kernel-sysctl").status == "cancelled"
    assert find(plan, "explore").evidence[-1].summary == "explore went well"
    assert find(plan, "apply-own").position < find(plan, "gate").position


def test_a_redirect_is_refused_whole_or_done_whole(store):
    plan = new_plan(store)
    with pytest.raises(NotFound):
        directives.skip(store, plan, "no-such-step", **SAY)

    assert store.read().revision == plan.revision
    assert store.read().steps == plan.steps


def test_a_frozen_plan_is_resumed_only_by_a_person(store):
    plan = new_plan(store)
    store.freeze(plan.id)
    with pytest.raises(IllegalMove):
        store.start(find(plan, "explore"))

    plan = directives.resume(store, store.read(), **SAY)
    assert plan.directives[-1].outcome == "resumed from frozen"
    store.start(find(plan, "explore"))
