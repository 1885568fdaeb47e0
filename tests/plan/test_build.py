"""An audit becomes a plan: what can be changed while the host runs, and all else listed apart."""

import pytest

from uncork.errors import BadInput
from uncork.knobs import knobs_at
from uncork.model.findings import Answer, Audit, Change, ChangeClass, Priority, Result
from uncork.plan.build import build, own_step
from uncork.plan.store import Store


@pytest.fixture
def knobs(tmp_path):
    for key, value in (("vm/swappiness", "60"), ("kernel/numa_balancing", "1")):
        path = tmp_path / "proc/sys" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value + "\n", encoding="utf-8")
    for cpu in range(3):
        path = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/x"
        path.parent.mkdir(parents=True)
        path.write_text("0\n" if cpu else "1\n", encoding="utf-8")
    return knobs_at(str(tmp_path))


def finding(id, *changes, priority=Priority.P1, answer=Answer.FAIL, change_class=ChangeClass.RUNTIME):
    return Result(
        id=id,
        answer=answer,
        priority=priority,
        change_class=change_class,
        dimension=id.split(".")[0],
        says=f"{id} is wrong",
        changes=tuple(changes),
        change=changes[0] if changes else None,
    )


def audit(*results):
    return Audit(1, "0", "host", tuple(results), {}, {})


SWAP = Change("sysctl", "vm.swappiness", "1")
NUMA = Change("sysctl", "kernel.numa_balancing", "0")


def test_the_chain_is_baseline_record_approval_changes_gate_confirm_benchmark_compare(knobs):
    plan = build(audit(finding("kernel.swap", SWAP)), knobs=knobs)

    assert [step.name for step in plan.steps] == [
        *("explore", "rank", "gate-before", "benchmark-before", "document", "approve"),
        "apply-kernel-sysctl",
        *("gate", "confirm", "benchmark", "compare", "decide", "close"),
    ]


def test_a_group_is_a_dimension_and_a_knob_with_the_highest_priority_in_it(knobs):
    results = (
        finding("kernel.swap", SWAP, priority=Priority.P2),
        finding("kernel.numa", NUMA, priority=Priority.P0),
        finding("numa.cpu", Change("sysfs", "/sys/devices/system/cpu/cpu*/x", "1")),
    )
    applies = {s.name: s for s in build(audit(*results), knobs=knobs).steps if s.changes}

    assert [c.target for c in applies["apply-kernel-sysctl"].changes] == [
        "vm.swappiness",
        "kernel.numa_balancing",
    ]
    assert applies["apply-kernel-sysctl"].priority == Priority.P0
    # cpu0 has the value already.
    assert [c.target[-6:] for c in applies["apply-numa-sysfs"].changes] == ["cpu1/x", "cpu2/x"]


def test_findings_that_one_change_each_cures_do_not_wait_for_each_other(knobs):
    def policy(*results):
        (step,) = [s for s in build(audit(*results), knobs=knobs).steps if s.changes]
        return step.policy

    both = Change("sysfs", "/sys/devices/system/cpu/cpu*/x", "1")
    assert policy(finding("kernel.swap", SWAP), finding("kernel.numa", NUMA)) == "best_effort"
    assert policy(finding("kernel.swap", SWAP)) == "all_or_nothing"
    # Two targets of one finding belong together, and what belongs together decides for its group.
    assert policy(finding("numa.cpu", both)) == "all_or_nothing"
    assert policy(finding("kernel.pair", SWAP, NUMA)) == "all_or_nothing"


def test_what_can_cost_access_is_all_or_nothing(knobs, monkeypatch):
    monkeypatch.setattr(type(knobs["sysctl"]), "risk", lambda self, target: "high")
    plan = build(audit(finding("kernel.swap", SWAP), finding("kernel.numa", NUMA)), knobs=knobs)

    assert [step.policy for step in plan.steps if step.changes] == ["all_or_nothing"]


def test_before_values_are_read_through_the_knob(knobs):
    (step,) = [s for s in build(audit(finding("kernel.swap", SWAP)), knobs=knobs).steps if s.changes]

    assert (step.changes[0].before, step.changes[0].findings) == ("60", ("kernel.swap",))


def test_what_cannot_be_done_at_run_time_is_listed_with_the_reason(knobs):
    results = (
        finding("firmware.rebar", change_class=ChangeClass.FIRMWARE),
        finding("kernel.gone", Change("sysctl", "vm.gone", "1")),
        finding("kernel.odd", Change("no-such-knob", "x", "1")),
        finding("kernel.bare"),
        finding("kernel.fine", SWAP, answer=Answer.PASS),
    )
    plan = build(audit(*results), knobs=knobs)
    why = {one.finding: one.why for one in plan.deferred}

    assert why["firmware.rebar"] == "is set in firmware"
    assert "cannot be read" in why["kernel.gone"]
    assert "no knob no-such-knob" in why["kernel.odd"]
    assert "no single write" in why["kernel.bare"]
    assert "kernel.fine" not in why
    # Without changes nothing waits for an approval or a confirm.
    assert {step.kind for step in plan.steps}.isdisjoint({"approve", "apply", "confirm", "decide"})
    assert plan.steps[-1].name == "close"


def test_one_target_is_planned_once_for_the_finding_that_ranks_first(knobs):
    plan = build(audit(finding("kernel.a", SWAP), finding("kernel.b", SWAP)), knobs=knobs)

    assert sum(len(step.changes) for step in plan.steps) == 1


def test_a_built_plan_can_be_stored(knobs, tmp_path):
    draft = build(audit(finding("kernel.swap", SWAP), finding("kernel.gone")), knobs=knobs)
    with Store(tmp_path) as store:
        plan = store.create(draft)

        assert [step.name for step in plan.steps] == [step.name for step in draft.steps]
        assert plan.deferred == draft.deferred


def test_a_persons_own_change_is_read_and_checked_like_any_other(knobs):
    step = own_step("sysctl", "vm.swappiness", "10", knobs=knobs)

    assert (step.name, step.changes[0].before) == ("apply-own-vm-swappiness", "60")
    for knob, target, want in (
        ("nonsense", "x", "1"),
        ("sysctl", "vm.gone", "1"),
        ("sysctl", "vm.swappiness", "60"),
    ):
        with pytest.raises(BadInput):
            own_step(knob, target, want, knobs=knobs)


def test_many_equal_changes_are_one_line():
    from uncork.model.plan import PlannedChange
    from uncork.plan.fold import fold

    many = [PlannedChange("cpuidle", f"cpu{n}/state3", "1", before="0") for n in range(384)]
    one = PlannedChange("sysctl", "vm.swappiness", "1", before="60", owners=("tuned",))

    assert fold([*many, one]) == [
        "cpu0/state3 ... cpu383/state3 (384 targets): 0 -> 1",
        "vm.swappiness: 60 -> 1  (also set by tuned)",
    ]
    assert len(fold(many[:3])) == 3
