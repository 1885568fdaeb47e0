"""Audit → plan: what can be changed while the host runs, in groups, with all else listed apart."""

import re
from collections import Counter
from collections.abc import Mapping

from uncork.checks import CHECKS
from uncork.errors import BadInput
from uncork.knobs import KNOBS, Knob, owners
from uncork.model.findings import Answer, Audit, Change, ChangeClass, Priority, Result
from uncork.model.plan import Deferred, Kind, Need, PlanDraft, PlannedChange, StepDraft
from uncork.model.unknown import Unknown

PRIORITIES = (Priority.P0, Priority.P1, Priority.P2, Priority.INFO)


def build(audit: Audit, *, knobs: Mapping[str, Knob] = KNOBS) -> PlanDraft:
    """The plan that an audit calls for: baseline, record, approval, an apply step a group, proof, comparison.

    A group is what one dimension changes through one knob. Before-values are read now, through the knob
    itself; a target that cannot be read, or that a knob vetoes, is deferred with the reason.
    """
    groups: dict[str, list[PlannedChange]] = {}
    about: dict[str, list[Result]] = {}
    deferred: list[Deferred] = []
    taken: set[tuple[str, str]] = set()
    with owners.remembered():
        for result in audit.results:
            if result.answer is not Answer.FAIL:
                continue
            changes = result.changes or ((result.change,) if result.change else ())
            if result.change_class is not ChangeClass.RUNTIME or not changes:
                deferred.append(_defer(result, _why_deferred(result)))
                continue
            for change in changes:
                planned, why_not = read_targets(change, knobs, finding=result.id)
                if why_not:
                    deferred.append(_defer(result, why_not))
                for one in planned:
                    if (one.knob, one.target) not in taken:
                        taken.add((one.knob, one.target))
                        name = f"apply-{result.dimension}-{one.knob}"
                        groups.setdefault(name, []).append(one)
                        if result not in about.setdefault(name, []):
                            about[name].append(result)
    applies = tuple(_apply_step(name, changes, about[name]) for name, changes in groups.items())
    return PlanDraft(audit.host, chain(applies), tuple(dict.fromkeys(deferred)))


def chain(applies: tuple[StepDraft, ...]) -> tuple[StepDraft, ...]:
    """The steps around the changes. Without changes the benchmark is repeated all the same: it shows how much
    two runs differ here when nothing was changed."""
    if not applies:
        return _LOOK + _REPEAT
    judged = StepDraft(
        "gate",
        Kind.GATE,
        "Verify again, with the changes in force",
        priority=Priority.P0,
        # A group that failed has been put back; the gate judges what is left.
        needs=(Need("approve"), *(Need(step.name, "ended") for step in applies)),
    )
    return (*_LOOK, _APPROVE, *applies, judged, *_PROVE)


_LOOK = (
    StepDraft("explore", Kind.EXPLORE, "Look at the host"),
    StepDraft("rank", Kind.RANK, "Rank what was found", needs=(Need("explore"),)),
    StepDraft(
        "gate-before",
        Kind.GATE,
        "Verify that the GPUs talk to each other",
        priority=Priority.P0,
        needs=(Need("rank"),),
    ),
    StepDraft(
        "benchmark-before",
        Kind.BENCHMARK,
        "Benchmark before any change",
        priority=Priority.P2,
        needs=(Need("gate-before", "ended"),),
    ),
    StepDraft(
        "document",
        Kind.DOCUMENT,
        "Write system-improve.md",
        priority=Priority.P1,
        needs=(Need("rank"), Need("benchmark-before", "ended")),
    ),
)
_REPEAT = (
    StepDraft("gate", Kind.GATE, "Verify again", priority=Priority.P0, needs=(Need("document"),)),
    StepDraft(
        "benchmark",
        Kind.BENCHMARK,
        "Benchmark again, nothing changed",
        priority=Priority.P2,
        needs=(Need("gate"),),
    ),
    StepDraft(
        "compare",
        Kind.COMPARE,
        "Compare the two: the noise of this host",
        priority=Priority.P2,
        needs=(Need("benchmark"), Need("benchmark-before")),
    ),
    StepDraft("close", Kind.CLOSE, "Close the plan", needs=(Need("compare", "ended"),)),
)
_APPROVE = StepDraft(
    "approve", Kind.APPROVE, "Approve the exact changes", priority=Priority.P1, needs=(Need("document"),)
)
_PROVE = (
    StepDraft(
        "confirm",
        Kind.CONFIRM,
        "Confirm the changes before they revert",
        priority=Priority.P1,
        needs=(Need("gate"),),
    ),
    StepDraft("benchmark", Kind.BENCHMARK, "Benchmark again", priority=Priority.P2, needs=(Need("confirm"),)),
    StepDraft(
        "compare",
        Kind.COMPARE,
        "Compare before and after",
        priority=Priority.P2,
        needs=(Need("benchmark"), Need("benchmark-before")),
    ),
    StepDraft("decide", Kind.DECIDE, "Keep or revert", priority=Priority.P1, needs=(Need("compare"),)),
    StepDraft("close", Kind.CLOSE, "Close the plan", needs=(Need("decide", "ended"),)),
)


def own_step(
    knob: str, target: str, want: str, *, name: str = "", why: str = "", knobs: Mapping[str, Knob] = KNOBS
) -> StepDraft:
    """An apply step that a person asked for. Raises `BadInput` where there is nothing that it would write."""
    if knob not in knobs:
        raise BadInput(f"There is no knob {knob}.", next=f"one of: {', '.join(knobs)}")
    planned, why_not = read_targets(Change(knob, target, want), knobs)
    if not planned:
        raise BadInput(f"{target}: {why_not or 'it has that value already'}.", next="uncork plan")
    slug = re.sub(r"[^a-z0-9]+", "-", target.lower()).strip("-")
    return StepDraft(
        *(name or f"apply-own-{slug}", Kind.APPLY, _title(planned), why),
        needs=(Need("approve"),),
        changes=tuple(planned),
    )


def _apply_step(name: str, changes: list[PlannedChange], about: list[Result]) -> StepDraft:
    priority = min((r.priority for r in about), key=PRIORITIES.index)
    return StepDraft(
        name,
        Kind.APPLY,
        _title(changes),
        why="; ".join(dict.fromkeys(result.says for result in about)),
        priority=priority,
        needs=(Need("approve"),),
        changes=tuple(changes),
        policy=_policy(changes),
    )


def _policy(changes: list[PlannedChange]) -> str:
    """Best effort where every finding of the group is cured by one change: each is worth having without the others.

    Where one finding names several targets (a setting of eight GPUs, buffers of both directions), some of them
    without the rest are a state that nobody proposed; and what can cost access to the host is never half done.
    """
    per_finding = Counter(finding for change in changes for finding in change.findings)
    independent = len(per_finding) > 1 and max(per_finding.values()) == 1
    risky = any(change.risk == "high" for change in changes)
    return "best_effort" if independent and not risky else "all_or_nothing"


def _title(changes: list[PlannedChange]) -> str:
    wants = dict.fromkeys(change.want for change in changes)
    if len(changes) == 1:
        return f"Set {changes[0].target} to {changes[0].want}"
    many = f"{len(changes)} targets of {changes[0].knob}"
    return f"Set {many} to {next(iter(wants))}" if len(wants) == 1 else f"Set {many}"


def read_targets(
    change: Change, knobs: Mapping[str, Knob], *, finding: str = ""
) -> tuple[list[PlannedChange], str]:
    """The single targets that still need the write, and why there are none where there is nothing to do."""
    try:
        knob = knobs[change.knob]
    except KeyError:
        return [], f"this uncork has no knob {change.knob}"
    targets = knob.targets(change.target)
    if not targets:
        return [], f"nothing matches {change.target}"
    planned, why_not = [], ""
    for target in targets:
        before = knob.read(target)
        if isinstance(before, Unknown):
            why_not = f"{target} cannot be read: {before.reason}"
        elif veto := knob.veto(target, change.want):
            why_not = veto
        elif knob.scope(target) != "runtime":
            why_not = f"{target} takes effect later ({knob.scope(target)})"
        elif not knob.same(change.want, before):
            owned = knob.owners(target)
            planned.append(
                PlannedChange(
                    *(change.knob, target, change.want, before, knob.risk(target), knob.scope(target)),
                    owners=owned,
                    findings=(finding,) if finding else (),
                )
            )
    return planned, why_not


def _defer(result: Result, why: str) -> Deferred:
    check = CHECKS.get(result.id)
    return Deferred(
        *(result.id, result.subject, result.says, result.priority, result.change_class, why),
        fix=check.fix if check else "",
    )


def _why_deferred(result: Result) -> str:
    return {
        ChangeClass.RUNTIME: "its check names no single write that would cure it",
        ChangeClass.SERVICE_RESTART: "needs a restart of the service",
        ChangeClass.REBOOT: "needs a reboot",
        ChangeClass.FIRMWARE: "is set in firmware",
        ChangeClass.HOST_ONLY: "can only be changed on the host, outside this container or guest",
        ChangeClass.NONE: "has no cure on this host",
    }[result.change_class]
