"""I counters, J link under load, K liveness."""

from uncork.gate import limits
from uncork.gate.criteria import Run, concluded
from uncork.gate.fabric import Counter, Register
from uncork.model.gate import Criterion, CriterionResult, Trouble
from uncork.model.unknown import is_unknown


def counters(run: Run, before: tuple[Counter, ...]) -> CriterionResult:
    """No error counter along any path may move; corrected errors may, rarely."""
    run.phase = Criterion.COUNTERS
    then = {(one.component, one.kind): one.value for one in before}
    missing, troubles = [], []
    after = run.fabric.counters()
    for one in after:
        start = then.get((one.component, one.kind))
        if start is None or is_unknown(start) or is_unknown(one.value):
            reason = one.value.reason if is_unknown(one.value) else "was not there at the start"
            reason = start.reason if is_unknown(start) else reason
            missing.append(f"{one.component} {one.kind}: unknown ({reason})")
            continue
        if one.value > start:
            troubles.append(_risen(run, one, int(one.value) - int(start)))
    if not after:
        missing.append("no counter could be read")
    says = f"{len(after)} counters before and after {run.moved_bytes / 1e9:.1f} GB"
    return concluded(Criterion.COUNTERS, says, troubles, missing)


def _risen(run: Run, one: Counter, more: int) -> Trouble:
    says = f"{one.component}: {more} {one.kind} error{'s' * (more != 1)} during the run"
    if one.kind != "correctable":
        return Trouble(says, component=one.component, measured=more, limit=0, unit="errors")
    allowed = max(1.0, limits.CORRECTABLE_PER_10_GB * run.moved_bytes / 10e9)
    source = "1 in 10 GB moved (a judgement: no base rate is published)"
    return Trouble(says, -1, -1, more > allowed, more, allowed, "errors", source, one.component)


def link(run: Run, before: tuple[Register, ...]) -> CriterionResult:
    """Generation and width while traffic flows, against what both ends can do; registers against the start."""
    run.phase = Criterion.LINK
    links = run.fabric.links(run.open_pairs())
    if is_unknown(links):
        return concluded(Criterion.LINK, "not read", (), [links.reason])
    missing, troubles = [], []
    for one in links:
        fields = (one.generation, one.width, one.max_generation, one.max_width)
        unknown = next((field.reason for field in fields if is_unknown(field)), None)
        if unknown:
            missing.append(f"{one.component}: {unknown}")
            continue
        run.links[one.component] = f"Gen{one.generation} x{one.width}"
        if one.generation < one.max_generation or one.width < one.max_width:
            runs, can = f"Gen{one.generation} x{one.width}", f"Gen{one.max_generation} x{one.max_width}"
            says = f"{one.component} runs at {runs}, both ends can do {can}"
            troubles.append(
                Trouble(
                    says, component=one.component, source="Link Status under load against Link Capabilities"
                )
            )
    troubles += _registers(run, before)
    if not links:
        missing.append("no link could be read")
    return concluded(Criterion.LINK, f"{len(links)} links under load", troubles, missing)


def _registers(run: Run, before: tuple[Register, ...]) -> list[Trouble]:
    """A register may not move while it is tested; where it differs from the baseline a change may have set it."""
    then = {(one.component, one.name): one.value for one in before}
    found, unread = [], dict[str, list[str]]()
    for one in run.fabric.registers():
        if is_unknown(one.value):
            unread.setdefault(one.value.reason, []).append(one.component)
            continue
        name = f"{one.component} {one.name}"
        run.links[name] = one.value
        start = then.get((one.component, one.name))
        of_baseline = run.baseline.links.get(name) if run.baseline else None
        if start is not None and not is_unknown(start) and start != one.value:
            says = f"{name} reads {one.value}, it was {start} before the first transfer"
            found.append(Trouble(says, component=one.component, source="the start of this run"))
        elif of_baseline is not None and of_baseline != one.value:
            says = f"{name} reads {one.value}, it was {of_baseline} when the baseline was taken"
            found.append(Trouble(says, blocking=False, component=one.component, source="the baseline"))
    for reason, components in unread.items():
        says = f"registers of {len(components)} devices were not compared: {reason}"
        found.append(Trouble(says, blocking=False, component=components[0]))
    return found


def liveness(run: Run) -> CriterionResult:
    """Every operation ended well within its deadline."""
    run.phase = Criterion.LIVENESS
    missing = [f"{run.pair(pair)}: refused ({why})" for pair, why in run.refused.items()]
    if not run.moved_bytes:
        missing.append("nothing was moved")
    says = "every operation ended in time" if not run.broken else "operations hung or failed"
    return concluded(Criterion.LIVENESS, says, run.broken, missing)
