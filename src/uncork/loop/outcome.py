"""How a run ended, for a person and for a program."""

import msgspec

from uncork.bench.compare import percent_interval
from uncork.loop import measure
from uncork.loop.attribute import is_toggle
from uncork.loop.run import Run, load_attribution, load_audit, load_bench, load_comparison, load_gate
from uncork.model.attribution import Attribution
from uncork.model.bound import Waterfall
from uncork.model.findings import Answer, Priority
from uncork.model.plan import Kind, Status, in_force
from uncork.record.report.reading import from_folder
from uncork.record.report.series import against


class Outcome(msgspec.Struct, frozen=True):
    """The end of a run in a few fields; `tok_s` is decode tokens/s of one stream."""

    plan: str
    record: str
    found: dict[str, int]
    changed: int
    skipped: str
    gate: str
    before: str
    after: str
    tok_s: float | None
    bound_tok_s: float | None
    bound_why: str
    comparison: str
    next: str
    attribution: Attribution | None = None  # None: it was not asked for

    @property
    def efficiency(self) -> float | None:
        """Measured over bound, of one stream."""
        return self.tok_s / self.bound_tok_s if self.tok_s and self.bound_tok_s else None

    def lines(self) -> list[tuple[str, str]]:
        """Label and sentence, in reading order."""
        found = ", ".join(f"{count} {name}" for name, count in self.found.items())
        changed = f"{self.changed} values, until the next reboot" if self.changed else "nothing"
        lines = [("Found", found), ("Changed", changed + (f" ({self.skipped})" if self.skipped else ""))]
        lines += [("Gate", self.gate), ("Before", self.before), ("After", self.after)]
        lines += [("Compared", self.comparison)]
        lines += [("Worth", text) for text in worth_lines(self.attribution)]
        lines += [("Bound", self._bound()), ("Record", self.record)]
        return [*lines, ("Next", self.next)]

    def _bound(self) -> str:
        if self.bound_tok_s is None:
            return f"not known: {self.bound_why}"
        share = (
            "" if self.efficiency is None else f"; measured {self.tok_s:.1f} = {self.efficiency:.1%} of it"
        )
        return f"{self.bound_tok_s:.1f} tokens/s at one stream{share}"


def worth_lines(found: Attribution | None) -> list[str]:
    """A sentence for each group and metric; none where no attribution was asked for."""
    if found is None:
        return []
    return [
        f"{one.title}: {one.metric} {one.ratio - 1:+.1%} ({percent_interval(one.low, one.high)}; {one.blocks}"
        f" blocks): {one.judgement.value}"
        for one in found.worth
    ] or [found.says]


def outcome(run: Run) -> Outcome:
    """Read how the run ended from its artefacts and its plan."""
    plan, folder = run.plan(), run.folder
    results = load_audit(folder).results
    before, after = load_bench(folder, "before"), load_bench(folder, "after")
    gate, compared = load_gate(folder, "after") or load_gate(folder, "before"), load_comparison(folder)
    found, why = measure.bound(run)
    kept = {held.step for held in plan.holds if held.state in ("confirmed", "open")}
    changed = sum(step.id in kept for step, _ in in_force(plan))
    groups = [s for s in plan.steps if s.kind is Kind.APPLY and not is_toggle(s)]
    skipped = [s for s in groups if s.status is not Status.COMPLETED]
    return Outcome(
        plan=plan.id,
        record=str(run.record),
        found={p.value: sum(r.priority is p and r.answer is Answer.FAIL for r in results) for p in Priority},
        changed=changed,
        skipped="; ".join(dict.fromkeys(f"{s.title}: {s.status.value}, {s.reason}" for s in skipped)),
        gate=f"{gate.verdict.value}: {gate.tested}" if gate else "not run",
        before=measure.summary(before) if before else "not measured",
        after=measure.summary(after) if after else "not measured",
        tok_s=measure.single_stream_tok_s(after) or measure.single_stream_tok_s(before),
        bound_tok_s=found.silicon.tok_s_user if found else None,
        bound_why=why,
        comparison=compared.says if compared else "nothing to compare",
        next="uncork rollback (puts it back), uncork persist (makes it last)"
        if changed
        else "uncork explain ID",
        attribution=load_attribution(folder),
    )


def where_time_goes(run: Run) -> Waterfall | None:
    """The newest waterfall at the fewest requests at once, None without a bound or a measurement of one."""
    story = from_folder(run.folder)
    rows = against(story, story.after) or against(story, story.before)
    return rows[0].waterfall if rows else None
