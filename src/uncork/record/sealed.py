"""The sealed part: what was found and what will be done, on disk before anything is touched."""

from collections.abc import Iterable
from statistics import fmean

import msgspec

from uncork.bench import fingerprints
from uncork.model.bench import BenchRun
from uncork.model.findings import Answer, Audit, Priority, Result
from uncork.model.gate import GateResult
from uncork.model.plan import Deferred, Plan, PlannedChange
from uncork.record.markdown import code, commands, fold, plain, table

SHOWN_TARGETS = 6  # of one change; the rest fold


class Before(msgspec.Struct, frozen=True):
    """Everything that is known before the first write.

    `bound` holds finished sentences, `efficiency` is measured over bound (None where either is missing);
    `undo` maps knob and target to the command a person would paste.
    """

    plan: Plan
    audit: Audit
    server: str
    host_lines: dict[str, str]
    gate: GateResult | None
    bench: BenchRun | None
    bound: tuple[str, ...]
    efficiency: float | None
    hold_s: float
    undo: dict[tuple[str, str], str]
    written_at: str
    explain: dict[str, tuple[str, str, str]]  # check id -> effect, confidence, source


def sealed_text(known: Before) -> str:
    """The sealed part as Markdown."""
    plan, audit = known.plan, known.audit
    lines = [*_front(known), f"# What holds back {plain(audit.host)}", ""]
    lines += _verdict(known)
    lines += [
        "## The host",
        "",
        *(f"- {plain(name)}: {plain(text)}" for name, text in known.host_lines.items()),
    ]
    lines += [f"- Server measured: {plain(known.server)}", ""]
    lines += _findings(known)
    lines += _right(audit)
    lines += _unread(audit)
    lines += _changes(known)
    lines += _left_alone(plan.deferred)
    lines += _chain(known)
    lines += _gate(known)
    lines += _contingency(known)
    lines += _baseline(known)
    return "\n".join(lines)


def _front(known: Before) -> list[str]:
    plan = known.plan
    pairs = {
        "plan": plan.id,
        "revision": str(plan.revision),
        "digest": plan.digest,
        "host": plain(known.audit.host),
        "uncork": known.audit.version,
        "machine": plain(known.host_lines.get("machine", "unknown")),
        "boot": plain(known.host_lines.get("boot", "unknown")),
        "written": known.written_at,
        "status": "sealed before any change",
    }
    return ["---", *(f"{name}: {value}" for name, value in pairs.items()), "---", ""]


def _failing(audit: Audit) -> list[Result]:
    return [result for result in audit.results if result.answer is Answer.FAIL]


def _verdict(known: Before) -> list[str]:
    failing = _failing(known.audit)
    counts = {p: sum(result.priority is p for result in failing) for p in Priority}
    worst = f" First: {plain(failing[0].says)}." if failing else ""
    # An attribution writes the same targets again and again; it changes no more of them.
    changes = len({(change.knob, change.target) for step in known.plan.steps for change in step.changes})
    return [
        "## Verdict",
        "",
        f"1. Found wrong: {counts[Priority.P0]} P0, {counts[Priority.P1]} P1, {counts[Priority.P2]} P2.{worst}",
        f"2. Measured before: {_measured(known)}",
        f"3. Will be changed while the server runs: {changes} values, every one with its undo below.",
        f"4. Needs more than that: {_deferred_counts(known.plan.deferred)}.",
        f"5. Data paths before: {_gate_line(known.gate)}",
        "",
    ]


def _measured(known: Before) -> str:
    if known.bench is None or not known.bench.levels:
        return "nothing (no benchmark was run)."
    best = max(known.bench.levels, key=lambda level: level.output_tok_s)
    share = "" if known.efficiency is None else f"; {known.efficiency:.1%} of the bound at one stream"
    return f"{best.output_tok_s:.1f} output tokens/s at {best.level}, the best level{share}."


def _deferred_counts(deferred: Iterable[Deferred]) -> str:
    counts: dict[str, int] = {}
    for one in deferred:
        counts[one.change_class.value] = counts.get(one.change_class.value, 0) + 1
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing"


def _gate_line(gate: GateResult | None) -> str:
    return f"{gate.verdict.value} — {plain(gate.tested)}" if gate else "not verified."


def _findings(known: Before) -> list[str]:
    failing = _failing(known.audit)
    lines = ["## Findings, ranked", ""]
    if not failing:
        return [*lines, "Nothing was found wrong among what could be read.", ""]
    for result in failing:
        if result.priority in (Priority.P0, Priority.P1):
            lines += _finding(known, result)
    small = [result for result in failing if result.priority not in (Priority.P0, Priority.P1)]
    rows = ([code(result.id), plain(result.says), result.change_class.value] for result in small)
    return lines + fold(f"{len(small)} small or conditional (P2, info)", table(("id", "what", "class"), rows))


def _finding(known: Before, result: Result) -> list[str]:
    effect, sure, source = known.explain.get(result.id, ("", "", ""))
    subject = f" ({plain(result.subject)})" if result.subject else ""
    lines = [f"### {result.priority.value} {plain(result.says)}{subject}", ""]
    lines += [f"- Check {code(result.id)}; cure: {result.change_class.value}"]
    if effect:
        lines += [f"- Expected effect ({sure} confidence): {plain(effect)}", f"- Source: {plain(source)}"]
    lines += [f"- Read {code(item.text)} in {code(item.source)}" for item in result.evidence[:SHOWN_TARGETS]]
    return [*lines, ""]


def _right(audit: Audit) -> list[str]:
    lines = [f"- {plain(name)}: {plain(text)}" for name, text in audit.right.items()]
    return ["## Confirmed right", "", *(lines or ["Nothing could be confirmed."]), ""]


def _unread(audit: Audit) -> list[str]:
    missing = [result for result in audit.results if result.answer is Answer.UNKNOWN]
    broken = {name: why for name, why in audit.explorers.items() if why != "ok"}
    lines = ["## What could not be read", ""]
    lines += [f"- The {plain(name)} explorer gave nothing: {plain(why)}" for name, why in broken.items()]
    reasons: dict[str, list[str]] = {}
    for result in missing:
        reasons.setdefault(result.reason, []).append(result.id)
    rows = ([plain(why, 160), plain(", ".join(dict.fromkeys(ids)), 300)] for why, ids in reasons.items())
    body = table(("why", "checks"), rows)
    return lines + (
        fold(f"{len(missing)} questions without an answer", body) or ["Every question had one.", ""]
    )


def _changes(known: Before) -> list[str]:
    lines = ["## Planned changes", ""]
    steps = [step for step in known.plan.steps if step.changes]
    if not steps:
        return [*lines, "None: nothing that was found wrong can be changed while the server runs.", ""]
    for step in steps:
        lines += [f"### {plain(step.title)}", "", f"{plain(step.why)}", ""]
        rows = [_change_row(change) for change in step.changes]
        head = ("knob", "target", "before", "after", "lasts", "risk", "also set by")
        lines += table(head, rows[:SHOWN_TARGETS])
        lines += fold(f"{len(rows) - SHOWN_TARGETS} more targets", table(head, rows[SHOWN_TARGETS:]))
        undo = [known.undo.get((change.knob, change.target), "") for change in step.changes]
        lines += fold("Undo by hand (uncork rollback does this)", commands(filter(None, undo)))
    return lines


def _change_row(change: PlannedChange) -> list[str]:
    before = "(not readable)" if change.before is None else change.before
    return [
        code(change.knob),
        code(change.target),
        code(before),
        code(change.want),
        change.scope,
        change.risk,
        plain(", ".join(change.owners)) or "nobody",
    ]


def _left_alone(deferred: tuple[Deferred, ...]) -> list[str]:
    rows = (
        [one.priority.value, code(one.finding), plain(one.says), one.change_class.value, plain(one.why)]
        for one in deferred
    )
    body = table(("", "check", "what", "needs", "why not now"), rows)
    return ["## Found and deliberately left alone", "", *(body or ["Nothing.", ""])]


def _chain(known: Before) -> list[str]:
    """The steps in their order, and whose consent they wait for."""
    plan = known.plan
    lines = ["## What will happen", ""]
    for step in plan.steps:
        needs = ", ".join(need.step for need in step.needs)
        after = f" (after {plain(needs)})" if needs else ""
        lines.append(f"{step.position}. {plain(step.title)}{after}")
    lines += [
        "",
        f"The changes above have the digest {code(plan.digest)}; nothing is written before a person approves",
    ]
    lines += [f"exactly that: `uncork approve {plan.digest[:8]}`. Who did stands in the finished part.", ""]
    return lines


def _limits(gate: GateResult) -> list[str]:
    """The numbers that every pair is held to, matrix by matrix."""
    lines = []
    for matrix in gate.matrices:
        limits = [cell.limit for cell in matrix.cells if cell.limit is not None]
        if limits:
            word = "at least" if matrix.higher_is_better else "at most"
            span = f"{min(limits):.4g}" + (f" to {max(limits):.4g}" if max(limits) > min(limits) else "")
            lines.append(f"- {plain(matrix.name)}: {len(limits)} pairs, each {word} {span} {matrix.unit}")
    return lines


def _gate(known: Before) -> list[str]:
    lines = ["## Gate", "", "No benchmark after a change counts unless this passes again after it.", ""]
    if known.gate is None:
        return [*lines, "It was not run before the change.", ""]
    rows = (
        [one.criterion.value, one.verdict.value if one.applies else "does not apply", plain(one.says)]
        for one in known.gate.criteria
    )
    lines += [_gate_line(known.gate), "", *table(("criterion", "before", "what was measured"), rows)]
    limits = _limits(known.gate)
    return lines + (["The limits in numbers:", "", *limits, ""] if limits else [])


def _contingency(known: Before) -> list[str]:
    return [
        "## If something goes wrong",
        "",
        f"- Each group reverts by itself {known.hold_s:g} s after it is written unless it is confirmed; that timer"
        " does not depend on this program, its terminal or its virtual environment.",
        "- A refused, clamped or ignored value undoes its whole group. A failed gate undoes the group.",
        "- A value that someone else has changed meanwhile is reported and left alone.",
        "- By hand: `uncork rollback`, or the commands above.",
        "",
    ]


def _means(run: BenchRun) -> list[str]:
    """One row a level: the mean over its valid repeats, from lowest to highest."""
    by_level: dict[str, list[float]] = {}
    for level in run.levels:
        if level.valid:
            by_level.setdefault(level.level, []).append(level.output_tok_s)
    rows = (
        [name, f"{fmean(values):.1f}", f"{min(values):.1f} to {max(values):.1f}", str(len(values))]
        for name, values in by_level.items()
    )
    return table(("level", "output tok/s", "lowest to highest", "repeats"), rows)


def _baseline(known: Before) -> list[str]:
    lines = ["## Baseline", ""]
    if known.bench is None:
        return [*lines, "No benchmark was run before the change.", ""]
    rows = (
        [
            level.level,
            str(level.repeat),
            f"{level.output_tok_s:.1f}",
            "" if level.ttft_ms is None else f"{level.ttft_ms.p50:.1f} / {level.ttft_ms.p99:.1f}",
            "" if level.itl_ms is None else f"{level.itl_ms.p50:.2f} / {level.itl_ms.p99:.2f}",
            f"{level.completed}/{level.requests}",
        ]
        for level in known.bench.levels
    )
    head = ("level", "repeat", "output tok/s", "TTFT p50 / p99 ms", "ITL p50 / p99 ms", "completed")
    lines += [*_means(known.bench), *fold("Every level and repeat", table(head, rows))]
    lines += [*(f"- {plain(line)}" for line in known.bound), ""]
    prints = ([plain(name), plain(text, 200)] for name, text in fingerprints.rows(known.bench.fingerprint))
    return lines + fold("Fingerprint of this run", table(("what", "value"), prints))
