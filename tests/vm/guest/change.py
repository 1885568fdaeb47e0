"""Runs in the guest: plans, approves and applies changes with the project's own engine, and may die on the way.

    change.py HOLD_S [--die POINT N] [--confirm]      changes as JSON lines on standard input

`--die` kills this process, without a word to anyone, when it passes the named crash point for the n-th time;
`stay` as the point means to wait, applied, for whoever kills it.
"""

import json
import os
import signal
import sys

from uncork.apply.hold import confirm_all
from uncork.apply.transaction import apply_step
from uncork.knobs import KNOBS
from uncork.loop.run import artefacts
from uncork.model.findings import Change
from uncork.model.plan import Kind, Need, PlanDraft, PlannedChange, StepDraft
from uncork.plan import database
from uncork.plan.approvals import approve
from uncork.plan.build import chain, read_targets
from uncork.plan.store import Store, find
from uncork.record import seal


def group(lines: list[str]) -> StepDraft:
    """One apply step with every target of all changes."""
    found: list[PlannedChange] = []
    for line in lines:
        change = Change(**json.loads(line))
        planned, why_not = read_targets(change, KNOBS)
        if why_not or not planned:
            raise SystemExit(f"{change}: {why_not or 'nothing to do'}")
        found += planned
    return StepDraft("apply", Kind.APPLY, "Apply", needs=(Need("approve"),), changes=tuple(found))


def passed(store: Store, *names: str) -> None:
    """Steps that are not what is tested here."""
    for name in names:
        step = find(store.read(), name)
        store.start(step)
        store.complete(step, "not part of this test")


def die_at(point: str, number: int) -> None:
    """SIGKILL to this process and its writing child, which are one group, at the n-th passing."""
    counter = os.memfd_create("passed")

    def reached(name: str) -> None:
        if name == point and os.write(counter, b".") and os.fstat(counter).st_size == number:
            os.killpg(0, signal.SIGKILL)

    database.point = reached


def main(hold_s: float, die: list[str], confirm: bool) -> None:
    """Apply them as one group."""
    with Store() as store:
        step = group(sys.stdin.read().splitlines())
        plan = store.create(PlanDraft("guest", chain((step,))))
        passed(store, "explore", "rank", "gate-before", "benchmark-before", "document")
        record = artefacts(store.folder, plan.id) / seal.NAME
        store.seal_record(plan.id, seal.seal(record, "# A change in the guest"))
        approve(store, plan, store.read().digest, by="tester", how="test")
        passed(store, "approve")
        if die and die[0] != "stay":
            die_at(die[0], int(die[1]))
        applied = apply_step(store, find(store.read(), step.name), hold_s=hold_s)
        print(applied.txn, flush=True)
        if confirm:
            passed(store, "gate")
            confirm_all(store, store.read())
        if die:
            open("/run/applied", "w", encoding="utf-8").close()
            signal.pause()


main(
    float(sys.argv[1]),
    sys.argv[sys.argv.index("--die") + 1 :][:2] if "--die" in sys.argv else [],
    "--confirm" in sys.argv,
)
