"""Run the criteria against a fabric and conclude."""

import datetime
import secrets
from collections.abc import Callable, Collection

from uncork import __version__
from uncork.gate import baseline as baselines
from uncork.gate import localise
from uncork.gate.choose import choose_fabric
from uncork.gate.criteria import OutOfTime, Run
from uncork.gate.criteria.access import access
from uncork.gate.criteria.bandwidth import bandwidth
from uncork.gate.criteria.concurrency import concurrency
from uncork.gate.criteria.errors import counters, link, liveness
from uncork.gate.criteria.flags import direct, latency, ordering
from uncork.gate.criteria.integrity import integrity, integrity_loaded
from uncork.gate.fabric import Counter, Fabric, Register, Stuck
from uncork.model.gate import Baseline, Criterion, CriterionResult, Depth, GateResult, Trouble, Verdict

SCHEMA = 1
QUICK = (Criterion.ACCESS, Criterion.INTEGRITY, Criterion.DIRECT, Criterion.COUNTERS, Criterion.LIVENESS)
CAP_S = {Depth.QUICK: 60.0, Depth.FULL: 60.0, Depth.SOAK: 1800.0}

# A pair that delivers wrong data is not asked how fast it does so; a pattern is judged by what its pairs carry alone.
NEEDS = {
    Criterion.INTEGRITY_LOADED: Criterion.INTEGRITY,
    Criterion.ORDERING: Criterion.INTEGRITY,
    Criterion.DIRECT: Criterion.INTEGRITY,
    Criterion.BANDWIDTH: Criterion.INTEGRITY,
    Criterion.CONCURRENCY: Criterion.BANDWIDTH,
    Criterion.LATENCY: Criterion.INTEGRITY,
}

Progress = Callable[[str], None]  # a line: which criterion runs, and how it ended

__all__ = ["CAP_S", "NEEDS", "QUICK", "choose_fabric", "verify"]


def verify(
    fabric: Fabric,
    depth: Depth | str = Depth.FULL,
    *,
    baseline: Baseline | None = None,
    progress: Progress = lambda line: None,
    without: Collection[Criterion] = (),
    nonce: int | None = None,
    cap_s: float | None = None,
) -> GateResult:
    """Ask every criterion of `depth` of every ordered pair of the fabric; never raises for what it finds.

    `baseline` is used where its fingerprint equals the fabric's; else the result says why not and link-derived
    floors apply. `without` leaves criteria out, which costs the pass; `cap_s` is the hard cap (60 s; a soak
    1800 s). The fabric stays open.
    """
    depth = Depth(depth)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    why_not = baselines.usable(baseline, fabric.fingerprint()) if baseline else "no baseline: a first run"
    used = None if why_not else baseline
    run = Run(fabric, depth, used, secrets.randbits(63) if nonce is None else nonce, cap_s or CAP_S[depth])
    results = _ask_all(run, without, progress)
    verdict = _conclude(run, results)
    run.warnings += fabric.notes()
    paths = {pair: fabric.path(*pair).components for pair in fabric.pairs}
    suspects = localise.suspects(paths, results)
    failing = [pair for suspect in suspects for pair in suspect.pairs]
    return GateResult(
        schema=SCHEMA,
        version=__version__,
        verdict=verdict,
        depth=depth,
        fabric=fabric.name,
        simulated=fabric.simulated,
        tested=fabric.tested,
        kernel=fabric.kernel,
        devices=run.labels,
        criteria=results,
        matrices=tuple(run.matrices),
        patterns=tuple(run.patterns),
        figures=tuple(run.figures),
        suspects=suspects,
        access=run.access,
        links=run.links,
        context=fabric.context(failing) if failing else {},
        warnings=tuple(run.warnings),
        fingerprint=fabric.fingerprint(),
        baseline=why_not or f"compared with {used.taken_at if used else ''}",
        started_at=started,
        cost_s=fabric.now_s() - run.started_s,
        next=_next(verdict, depth, results),
    )


def _ask_all(run: Run, without: Collection[Criterion], progress: Progress) -> tuple[CriterionResult, ...]:
    before, registers = run.fabric.counters(), run.fabric.registers()
    ended = ""
    results: dict[Criterion, CriterionResult] = {}
    why = run.fabric.does_not_apply
    for criterion in Criterion:
        if criterion in why:
            results[criterion] = CriterionResult(
                criterion, Verdict.INCONCLUSIVE, why[criterion], applies=False
            )
        elif run.depth is Depth.QUICK and criterion not in QUICK:
            says = "not asked by a quick run"
            results[criterion] = CriterionResult(criterion, Verdict.INCONCLUSIVE, says, applies=False)
        elif reason := _not_askable(criterion, without, results, ended):
            results[criterion] = CriterionResult(
                criterion, Verdict.INCONCLUSIVE, "not run", not_run=(reason,)
            )
        else:
            progress(f"{criterion} …")
            results[criterion], ended = _ask(run, criterion, before, registers, ended)
            progress(f"{criterion}: {results[criterion].verdict}")
    if not ended:
        run.figures += run.fabric.extra_figures(run.depth)
        run.matrices += run.fabric.extra_matrices(run.depth)
    return tuple(results.values())


def _not_askable(
    criterion: Criterion,
    without: Collection[Criterion],
    results: dict[Criterion, CriterionResult],
    ended: str,
) -> str:
    if criterion in without:
        return "left out on request"
    if ended and criterion is not Criterion.LIVENESS:
        return ended
    need = NEEDS.get(criterion)
    if need is not None and results[need].applies and results[need].says == "not run":
        return f"needs {need}, which did not run"
    return ""


def _ask(
    run: Run, criterion: Criterion, before: tuple[Counter, ...], registers: tuple[Register, ...], ended: str
) -> tuple[CriterionResult, str]:
    asks: dict[Criterion, Callable[[], CriterionResult]] = {
        Criterion.ACCESS: lambda: access(run),
        Criterion.INTEGRITY: lambda: integrity(run),
        Criterion.INTEGRITY_LOADED: lambda: integrity_loaded(run),
        Criterion.ORDERING: lambda: ordering(run),
        Criterion.DIRECT: lambda: direct(run),
        Criterion.BANDWIDTH: lambda: bandwidth(run),
        Criterion.CONCURRENCY: lambda: concurrency(run),
        Criterion.LATENCY: lambda: latency(run),
        Criterion.COUNTERS: lambda: counters(run, before),
        Criterion.LINK: lambda: link(run, registers),
        Criterion.LIVENESS: lambda: liveness(run),
    }
    try:
        return asks[criterion](), ended
    except OutOfTime:
        says = f"the hard cap of {run.end_s - run.started_s:.0f} s was reached during {criterion}"
        return CriterionResult(criterion, Verdict.INCONCLUSIVE, "not run", not_run=(says,)), says
    except Stuck as stuck:
        run.broken.append(Trouble(stuck.says, component=run.labels[stuck.device]))
        says = f"the run ended during {criterion}: {stuck.says}"
        return CriterionResult(criterion, Verdict.INCONCLUSIVE, "not run", not_run=(says,)), says


def _conclude(run: Run, results: tuple[CriterionResult, ...]) -> Verdict:
    asked = [result for result in results if result.applies]
    if any(result.verdict is Verdict.FAIL for result in asked):
        return Verdict.FAIL
    disturbing = run.fabric.preconditions()
    run.warnings += disturbing
    complete = all(result.verdict is Verdict.PASS for result in asked)
    # Nothing tested is never a pass.
    return Verdict.PASS if complete and run.moved_bytes and not disturbing else Verdict.INCONCLUSIVE


def _next(verdict: Verdict, depth: Depth, results: tuple[CriterionResult, ...]) -> str:
    if verdict is Verdict.FAIL:
        return "look at the first suspect; undo the last change and run the gate again to learn whether it is to blame"
    if verdict is Verdict.INCONCLUSIVE:
        return "see what did not run, remove the reason and run `uncork verify` again; this is not a pass"
    return (
        "run `uncork verify` (full) before a benchmark counts"
        if depth is Depth.QUICK
        else "benchmark: the gate is open"
    )
