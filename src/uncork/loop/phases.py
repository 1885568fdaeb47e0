"""What each step of the plan does. A phase ends its own step, with evidence, or raises."""

import os
import time
from collections.abc import Callable

import msgspec

from uncork.apply import chain, hold
from uncork.apply.dry_run import predict
from uncork.apply.transaction import apply_step
from uncork.bench.compare import compare
from uncork.bench.noise import FILE, floors, read_noise
from uncork.checks import load as load_checks
from uncork.errors import ChangeFailed, IllegalMove, MeasureFailed, NotApproved, Refused, UncorkError
from uncork.knobs import KNOBS
from uncork.loop import attribute, measure
from uncork.loop.identity import altered_by
from uncork.loop.run import Run, load_audit, load_bench, load_comparison, load_gate, save
from uncork.model.comparison import Judgement
from uncork.model.gate import Verdict
from uncork.model.plan import Kind, Plan, PlannedChange, Status, Step, in_force
from uncork.plan.approvals import approve, approved
from uncork.record.finished import After, finished_text
from uncork.record.seal import finish, seal
from uncork.record.sealed import Before, sealed_text

CAP_SYS_RESOURCE = 24  # include/uapi/linux/capability.h

Phase = Callable[[Run, Plan, Step], None]


def gate_before(run: Run, plan: Plan, step: Step) -> None:
    """Judge the data paths as they are."""
    run.store.start(step)
    result = measure.gate(run, "before")
    said = f"{result.tested} {result.verdict.value}"
    if result.verdict is Verdict.PASS:
        run.store.complete(step, said, artefact="gate-before.json")
        return
    # A gate that fails before any change is a finding about the host, not about us; the baseline is still worth
    # having, and the gate after the change stays closed unless it passes.
    run.store.evidence(step, result.verdict.value, said, artefact="gate-before.json")
    run.store.fail(step, f"gate: {said}")


def benchmark(run: Run, plan: Plan, step: Step) -> None:
    """Run the suite and keep what it measured."""
    run.store.start(step)
    when = "before" if step.name.endswith("before") else "after"
    try:
        result = measure.bench(run, when)
    except MeasureFailed:
        run.store.unstart(step)  # finished levels are kept: --resume goes on with what is missing
        raise
    usable = [level for level in result.levels if level.valid]
    if not usable:
        why = result.levels[0].invalid_reason if result.levels else "nothing was measured"
        run.store.evidence(step, "inconclusive", why)
        run.store.fail(step, f"no level could be used: {why}")
        return
    run.store.complete(step, measure.summary(result), artefact=f"bench-{when}/summary.json")


def document(run: Run, plan: Plan, step: Step) -> None:
    """Write and seal system-improve.md; nothing is changed before it is on disk."""
    run.store.start(step)
    audit = load_audit(run.folder)
    before = load_bench(run.folder, "before")
    found, why = measure.bound(run)
    rate = measure.single_stream_tok_s(before)
    checks = load_checks()
    known = Before(
        plan=plan,
        audit=audit,
        server=f"{run.server.kind} at {run.server.endpoint}, {run.server.model} ({run.server.how})"
        if run.server
        else "none",
        host_lines=_host_lines(run),
        gate=load_gate(run.folder, "before"),
        bench=before,
        bound=measure.as_lines(found, why),
        efficiency=rate / found.silicon.tok_s_user if rate and found else None,
        hold_s=run.options.hold_s,
        undo={(c.knob, c.target): _undo(c) for s in plan.steps for c in s.changes},
        written_at=time.strftime("%Y-%m-%d %H:%M:%S %z"),
        explain={one.id: (one.effect, one.confidence.value, one.source) for one in checks.values()},
    )
    save(run.folder, "undo.json", {f"{knob}:{target}": how for (knob, target), how in known.undo.items()})
    sha256 = seal(run.record, sealed_text(known))
    run.store.seal_record(plan.id, sha256)
    run.store.complete(step, f"{run.record} sealed, sha256 {sha256[:16]}…", artefact=str(run.record))


def ask(run: Run, plan: Plan, step: Step) -> None:
    """Skip what cannot be written here, then ask once for the rest. Raises `NotApproved`."""
    for one in plan.steps:
        if one.kind is not Kind.APPLY or one.status is not Status.PENDING:
            continue
        why = _predicted(one) if run.options.dry_run else unwritable(one.changes)
        if why:
            run.store.skip(one, why)
            if attribute.is_toggle(one):
                continue  # its group has been named
            run.say.note(f"Skipped: {one.title} ({why})")
    plan = run.plan()
    waiting = [one for one in plan.steps if one.kind is Kind.APPLY and one.status is Status.PENDING]
    if waiting and not approved(plan):
        if run.options.yes:
            approve(run.store, plan, plan.digest, by=_who(), how="uncork run --yes")
        elif run.say.approve(plan):
            approve(run.store, plan, plan.digest, by=_who(), how="answered yes at the terminal")
        else:
            raise NotApproved(
                f"The changes of plan {plan.id} are not approved; nothing was changed. The record: {run.record}",
                next=f"uncork approve {plan.digest[:8]}, then uncork run --resume",
            )
    run.store.start(step)
    done = f"{len(waiting)} groups approved" if waiting else "nothing here can be written: nothing to approve"
    run.store.complete(step, done)


def apply(run: Run, plan: Plan, step: Step) -> None:
    """Write one group under its hold; a group that fails was put back, and the others go on."""
    try:
        apply_step(run.store, step, hold_s=run.options.hold_s)
    except (ChangeFailed, Refused) as error:
        if run.plan().state != "active":
            raise
        run.say.note(f"{step.title}: {error.says}")


def gate_after(run: Run, plan: Plan, step: Step) -> None:
    """Judge the data paths with the changes in force; undo the newest group until the gate passes again."""
    while True:
        run.store.start(step)
        _hold_on(run)
        result = measure.gate(run, "after")
        said = f"{result.tested} {result.verdict.value}"
        if result.verdict is Verdict.PASS:
            run.store.complete(step, said, artefact="gate-after.json")
            return
        run.store.evidence(step, result.verdict.value, said, artefact="gate-after.json")
        run.store.fail(step, f"gate: {said}")
        holds = hold.open_holds(run.plan())
        if not holds:
            run.say.note(f"The gate did not pass and nothing of ours is left to undo: {said}")
            return
        undo_group(run, holds[-1].txn, f"the gate said {result.verdict.value}")


def _hold_on(run: Run) -> None:
    """Give every open hold its whole time again: a long gate must not end in the middle of a revert."""
    for held in hold.open_holds(run.plan()):
        try:
            hold.extend(run.store, held.txn, run.options.hold_s)
        except IllegalMove:
            pass  # it has longer already, or its deadline was first


def undo_group(run: Run, txn: str, why: str) -> None:
    """Put one group back and say so on its step."""
    plan = run.plan()
    held = next(one for one in plan.holds if one.txn == txn)
    step = next(one for one in plan.steps if one.id == held.step)
    hold.undo(run.store, txn, why=why)
    fresh = next(one for one in run.plan().steps if one.id == held.step)
    if fresh.status in (Status.COMPLETED, Status.IN_PROGRESS, Status.FAILED):
        run.store.revert(fresh, why)
    run.say.note(f"Put back: {step.title} ({why})")


def confirm(run: Run, plan: Plan, step: Step) -> None:
    """Keep the changes past their deadline: the gate has passed."""
    run.store.start(step)
    count = hold.confirm_all(run.store, plan)
    run.store.complete(
        step, f"{count} groups confirmed" if count else "nothing was changed: nothing to confirm"
    )


def compared(run: Run, plan: Plan, step: Step) -> None:
    """Say what the two runs support."""
    run.store.start(step)
    before, after = load_bench(run.folder, "before"), load_bench(run.folder, "after")
    if before is None or after is None:
        run.store.evidence(step, "inconclusive", "one of the two runs is missing")
        run.store.fail(step, "one of the two runs is missing")
        return
    tested = [name for _, c in in_force(plan) for name in altered_by(c.knob, c.target)]
    known = read_noise(run.store.folder / FILE)
    result = compare(before, after, tested=tested, floor=floors(known, before, after) if known else {})
    if not tested and result.judgement is not Judgement.NOT_COMPARABLE:
        says = f"nothing was changed, so this is the noise of this host: {result.says}"
        result = msgspec.structs.replace(result, says=says)
    save(run.folder, "comparison.json", result)
    run.store.complete(step, result.says, artefact="comparison.json")


def decide(run: Run, plan: Plan, step: Step) -> None:
    """Keep, or put back what made the server worse."""
    run.store.start(step)
    result = load_comparison(run.folder)
    kept = [held for held in plan.holds if held.state == "confirmed"]
    if (
        result
        and kept
        and result.judgement is Judgement.WORSE
        and (run.options.yes or run.say.revert_worse(result.says))
    ):
        for held in reversed(kept):
            undo_group(run, held.txn, "the run after it was worse")
        run.store.complete(step, f"reverted: {result.says}")
        return
    says = result.says if result else "no comparison"
    run.store.complete(step, f"kept: {says}" if kept else f"nothing to keep; {says}")


def close(run: Run, plan: Plan, step: Step) -> None:
    """Finish the record and end the plan; what was left is blocked, and is cancelled with what blocks it."""
    for one in plan.steps:
        if one.status is Status.PENDING and one.name != step.name:
            run.store.cancel(one, one.detail or "the plan ended before it")
    run.store.start(step)
    plan = run.plan()
    if run.record.exists():
        finish(run.record, finished_text(_after(run, plan)) + "\n\n" + chain.footer(run.store.db))
        run.store.complete(step, f"{run.record} finished", artefact=str(run.record))
    else:
        run.store.complete(step, "no record was written, since the plan ended before it")
    run.store.close_plan(plan.id)
    save(run.folder, "plan.json", run.plan())


def _after(run: Run, plan: Plan) -> After:
    return After(
        plan=plan,
        gate=load_gate(run.folder, "after"),
        comparison=load_comparison(run.folder),
        written_at=time.strftime("%Y-%m-%d %H:%M:%S %z"),
    )


PHASES: dict[str, Phase] = {
    "gate-before": gate_before,
    "benchmark-before": benchmark,
    "document": document,
    "approve": ask,
    "gate": gate_after,
    "confirm": confirm,
    "benchmark": benchmark,
    "compare": compared,
    attribute.NAME: attribute.judge,
    "decide": decide,
    "close": close,
}


def phase_of(step: Step) -> Phase:
    """The phase that does a step. Raises `Refused` for a step that somebody added by hand."""
    if step.kind is Kind.APPLY:
        return attribute.toggle if attribute.is_toggle(step) else apply
    if step.name not in PHASES:
        raise Refused(
            f"Step {step.name} is not one that the loop does by itself.", next=f"uncork plan skip {step.name}"
        )
    return PHASES[step.name]


def _predicted(step: Step) -> str:
    """What a dry run says instead of writing: how many targets would change, and the first reason against one."""
    answers = predict(step)
    would = sum(one.answer == "would-change" for one in answers)
    against = next((f"; {one.change.target}: {one.why}" for one in answers if one.why), "")
    return f"dry run: would change {would} of {len(answers)}{against}"


def unwritable(changes: tuple[PlannedChange, ...]) -> str:
    """Why this process cannot make these changes; empty where nothing speaks against it."""
    if os.geteuid() != 0:
        return "writing needs root: sudo uncork run"
    for change in changes:
        if change.knob == "rlimit" and not _has_capability(CAP_SYS_RESOURCE):
            return "raising a limit needs CAP_SYS_RESOURCE, which root lacks here, as in a container"
        path = KNOBS[change.knob].recipe(change.target).get("path")
        if isinstance(path, str) and os.path.exists(path) and not os.access(path, os.W_OK):
            return f"{path} is read-only here, as in a container: change it on the host"
    return ""


def _has_capability(number: int) -> bool:
    """Whether this process has a capability in effect (capabilities(7); CapEff of /proc/self/status)."""
    with open("/proc/self/status", encoding="ascii") as status:
        line = next((one for one in status if one.startswith("CapEff:")), "CapEff: 0")
    return bool(int(line.split()[1], 16) >> number & 1)


def _undo(change: PlannedChange) -> str:
    try:
        return KNOBS[change.knob].undo_command(change.target, change.before or "")
    except (UncorkError, OSError):
        return ""


def _who() -> str:
    return os.environ.get("SUDO_USER") or os.environ.get("USER") or f"uid {os.getuid()}"


def _host_lines(run: Run) -> dict[str, str]:
    from uncork.loop.fingerprint import host_lines

    return host_lines(run.host)
