"""Plans for tests: the real chain around changes of a sysctl."""

from pathlib import Path

from uncork.model.findings import Priority
from uncork.model.plan import Kind, Need, Plan, PlanDraft, PlannedChange, StepDraft
from uncork.plan.approvals import approve
from uncork.plan.build import chain
from uncork.plan.store import Store, find

SWAPPINESS = PlannedChange("sysctl", "vm.swappiness", "1", before="60")


def apply_step(name: str = "apply-kernel-sysctl", *changes: PlannedChange) -> StepDraft:
    return StepDraft(
        name,
        Kind.APPLY,
        "Set vm.swappiness to 1",
        priority=Priority.P1,
        needs=(Need("approve"),),
        changes=changes or (SWAPPINESS,),
    )


def new_plan(store: Store, *applies: StepDraft) -> Plan:
    return store.create(PlanDraft("host", chain(applies or (apply_step(),))))


def pass_step(store: Store, plan: Plan, name: str) -> None:
    step = find(plan, name)
    store.start(step)
    store.complete(step, f"{name} went well")


def until_approved(store: Store, plan: Plan) -> Plan:
    for name in ("explore", "rank", "gate-before", "benchmark-before", "document"):
        pass_step(store, plan, name)
    store.seal_record(plan.id, "0" * 64)
    approve(store, plan, store.read(plan.id).digest, by="tester", how="test")
    pass_step(store, plan, "approve")
    return store.read(plan.id)


def store_at(folder: Path) -> Store:
    return Store(folder)
