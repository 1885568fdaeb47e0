"""Attribution: each group of changes is put back and set again, block by block, and measured both ways.

Every block is an apply step of the plan, from the new values to the former ones: approved with all the others in
the one question, written under a hold of its own, and ended by undoing that hold, which sets the change again. So
the journal, the timer and `uncork rollback` treat it as any other group: a crash in the middle leaves a hold that
reverts by itself, and a rollback undoes the newest first.
"""

import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from uncork.apply import hold, revert
from uncork.apply.outcome import undo_failed
from uncork.apply.transaction import apply_step
from uncork.bench.attribution import Block, attribution, unusable
from uncork.errors import ChangeFailed, Refused
from uncork.loop import measure
from uncork.loop.run import Run, load_gate, save
from uncork.model.bench import BenchRun
from uncork.model.findings import Priority
from uncork.model.gate import Verdict
from uncork.model.plan import Kind, Need, Plan, PlanDraft, Status, Step, StepDraft
from uncork.plan.store import find

NAME = "attribute"
MARK = "attribute-"  # attribute-1-apply-cpu-sysctl: block, then the group's step
FOLDER = "attribution"
ORDER = ("on1", "off1", "off2", "on2")
LONGER = 4.0  # the hold against what one measurement took: two of them, and a busy host


def with_toggles(draft: PlanDraft, *, blocks: int, seed: int) -> PlanDraft:
    """The plan with `blocks` blocks a group after its comparison, the groups of a round in an order of the seed.

    A group whose values before are not known, or that can cost access to the host, is not toggled.
    """
    groups = [step for step in draft.steps if step.kind is Kind.APPLY and toggleable(step)]
    if not groups or blocks < 1:
        return draft
    chance = random.Random(f"uncork-attribute-{seed}")
    toggles: list[StepDraft] = []
    for block in range(1, blocks + 1):
        chance.shuffle(groups)
        toggles += [_toggle_draft(group, block, blocks) for group in groups]
    judge = StepDraft(
        NAME, Kind.COMPARE, "Say what each group was worth", priority=Priority.P2, needs=(Need("confirm"),)
    )
    at = next(index for index, step in enumerate(draft.steps) if step.kind is Kind.DECIDE)
    steps = (*draft.steps[:at], *toggles, judge, *draft.steps[at:])
    return msgspec.structs.replace(draft, steps=steps)


def toggleable(step: StepDraft) -> bool:
    """Whether a group may be put back and set again."""
    return all(change.before is not None and change.risk != "high" for change in step.changes)


def _toggle_draft(group: StepDraft, block: int, blocks: int) -> StepDraft:
    changes = tuple(
        msgspec.structs.replace(change, before=change.want, want=change.before or "")
        for change in group.changes
    )
    return StepDraft(
        name=f"{MARK}{block}-{group.name}",
        kind=Kind.APPLY,
        title=f"Attribution {block}/{blocks}, put back for a while: {group.title}",
        why="Measured set, put back, put back, set; then it stays set. Each value is written twice.",
        priority=Priority.INFO,
        needs=(Need("confirm"), Need(group.name)),
        changes=changes,
    )


def is_toggle(step: Step) -> bool:
    """Whether an apply step is a block of the attribution."""
    return step.kind is Kind.APPLY and step.name.startswith(MARK)


def group_of(step: Step) -> str:
    """The name of the apply step whose changes this block puts back."""
    return step.name.removeprefix(MARK).partition("-")[2]


def repeats_words(plan: Plan) -> str:
    """What an approval covers besides the changes themselves; empty where nothing is toggled."""
    toggles = [step for step in plan.steps if is_toggle(step) and step.status is Status.PENDING]
    if not toggles:
        return ""
    writes = sum(2 * len(step.changes) for step in toggles)
    groups = len({group_of(step) for step in toggles})
    return (
        f"For the attribution each of {groups} groups is then put back and set again"
        f" {len(toggles) // groups} times ({writes} more writes), under a timer that sets it again."
    )


def toggle(run: Run, plan: Plan, step: Step) -> None:
    """Measure one block: set, put back, put back, set. Whatever happens, the group is set again.

    Raises `UndoFailed` where it could not be set again, and what the measurement raises.
    """
    if why := _why_not(run, plan, step):
        run.store.skip(step, why)
        return
    folder = run.folder / FOLDER / step.name
    shutil.rmtree(folder, ignore_errors=True)  # half a block of an earlier hour is not this block's
    began_s = time.monotonic()
    _measure(run, step, folder, 0)
    took_s = time.monotonic() - began_s
    try:
        applied = apply_step(run.store, step, hold_s=max(run.options.hold_s, LONGER * took_s))
    except (ChangeFailed, Refused) as error:
        if run.plan().state != "active":
            raise
        run.say.note(f"{step.title}: {error.says}")
        return
    try:
        _measure(run, step, folder, 1)
        _measure(run, step, folder, 2)
    finally:
        in_time = _set_again(run, step, applied.txn)
    if not in_time:
        run.say.note(f"{step.title}: its timer set it again before it was measured; this block is left out")
        return
    _measure(run, step, folder, 3)
    save(folder, "whole.json", {"order": ORDER})


def set_again_left(run: Run) -> None:
    """Set again what a run that died in the middle of a block had put back. Raises `UndoFailed`."""
    plan = run.plan()
    toggles = {step.id: step for step in plan.steps if is_toggle(step)}
    for held in hold.open_holds(plan):
        if held.step in toggles:
            _set_again(run, toggles[held.step], held.txn)
            run.say.note(f"Set again: {find(plan, group_of(toggles[held.step])).title}")


def judge(run: Run, plan: Plan, step: Step) -> None:
    """Say what each group was worth, from the blocks that are whole."""
    run.store.start(step)
    groups: dict[str, tuple[str, Sequence[Block]]] = {}
    notes = []
    for one in plan.steps:
        if not is_toggle(one):
            continue
        title = find(plan, group_of(one)).title
        block = _block(run.folder / FOLDER / one.name)
        blocks = groups.get(group_of(one), (title, []))[1]
        groups[group_of(one)] = (title, [*blocks, *([block] if block else [])])
        if block is None:
            notes.append(f"{one.title}: left out ({one.reason or one.detail or one.status.value})")
        else:
            notes += [f"{one.title}: {why}" for why in unusable(block)]
    result = attribution({name: known for name, known in groups.items() if known[1]}, notes)
    save(run.folder, f"{FOLDER}.json", result)
    if not result.worth:
        run.store.evidence(step, "inconclusive", result.says)
        run.store.fail(step, result.says)
        return
    run.store.complete(step, result.says, artefact=f"{FOLDER}.json")


def _why_not(run: Run, plan: Plan, step: Step) -> str:
    before = load_gate(run.folder, "before")
    if before is None or before.verdict is not Verdict.PASS:
        # The former value may be what corrupts data between GPUs; users are being served.
        return "the gate did not pass before the changes, so no change is put back for a measurement"
    group = find(plan, group_of(step))
    kept = any(one.step == group.id and one.state == "confirmed" for one in plan.holds)
    if group.not_taken:
        return f"{group.title}: {', '.join(group.not_taken)} did not take it, so there is no whole group to toggle"
    return "" if kept else f"{group.title}: it is not in force"


def _measure(run: Run, step: Step, folder: Path, place: int) -> None:
    # Its own seed: no prompt is asked twice, so that the server's prefix cache cannot flatter the later one.
    seed = run.options.seed * 1_000_003 + step.position * len(ORDER) + place + 1
    measure.once(run, folder / ORDER[place], seed)


def _set_again(run: Run, step: Step, txn: str) -> bool:
    """Undo the block's hold; false where its timer was first. Raises `UndoFailed`."""
    outcomes = hold.undo(run.store, txn, why="the attribution has measured it")
    bad = [outcome for outcome in outcomes or () if outcome["end"] in revert.LEFT]
    if bad:
        raise undo_failed(f"{step.title}: not all of it could be set again", bad)
    return outcomes is not None


def _block(folder: Path) -> Block | None:
    if not (folder / "whole.json").exists():
        return None
    runs = {
        name: msgspec.json.decode((folder / name / "summary.json").read_bytes(), type=BenchRun)
        for name in ORDER
    }
    return Block(on=(runs["on1"], runs["on2"]), off=(runs["off1"], runs["off2"]))
