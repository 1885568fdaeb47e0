"""F bandwidth: every pair, engine and direction against its link's floor, class, baseline and ceiling."""

import statistics
from collections import defaultdict

import msgspec

from uncork.gate import limits
from uncork.gate.criteria import Pair, Run, Way, class_of, concluded
from uncork.gate.criteria.integrity import ways
from uncork.gate.estimate import Estimate, first_look, second_look
from uncork.gate.fabric import Engine
from uncork.model.gate import Cell, Criterion, CriterionResult, Matrix, Trouble, Verdict


class Limit(msgspec.Struct, frozen=True):
    """A bar that a figure is held to, where it comes from, and whether falling short of it blocks."""

    gb_s: float
    says: str
    blocking: bool


def matrix_name(way: Way) -> str:
    """The name under which a way's matrix is stored and compared."""
    return f"bandwidth, {way[0]} {way[1]}"


def baseline_cells(run: Run, name: str) -> dict[Pair, float]:
    """The figures of a matrix in the baseline."""
    if run.baseline is None:
        return {}
    return {
        (cell.src, cell.dst): cell.value
        for matrix in run.baseline.matrices
        if matrix.name == name
        for cell in matrix.cells
        if cell.value is not None
    }


def look(run: Run, way: Way) -> dict[Pair, Estimate]:
    """Medians of three for every open pair, measured once a run and shared by the criteria."""
    for pair in run.open_pairs():
        if (way, pair) not in run.cells:
            loops = run.loops(way, pair)
            run.cells[way, pair] = first_look(lambda p=pair, n=loops: run.timed(way, p, loops=n))  # type: ignore[misc]
    return {pair: cell for (one, pair), cell in run.cells.items() if one == way}


def bandwidth(run: Run) -> CriterionResult:
    """Measure every way; re-measure what fails; say which limit each failing cell broke."""
    run.phase = Criterion.BANDWIDTH
    missing, troubles, unstable, cells = run.not_asked(), [], 0, 0
    for way in ways(run):
        judged, bars = _judge(run, way)
        run.matrices.append(Matrix(matrix_name(way), "GB/s", run.labels, tuple(judged)))
        for cell in judged:
            cells += 1
            unstable += cell.unstable
            if cell.invalid:
                missing.append(f"{run.pair((cell.src, cell.dst))} {way[0]} {way[1]}: {cell.why}")
            elif trouble := _below(run, way, cell, bars[cell.src, cell.dst]):
                troubles.append(trouble)
                if trouble.blocking and way[0] is Engine.COPY:
                    run.slow.add((cell.src, cell.dst))
        troubles += _asymmetry(run, way, judged)
    if unstable > max(1, limits.UNSTABLE_FRACTION * cells):
        line = f"{unstable} of {cells} figures failed first and passed when measured again: the host is not quiet"
        # On host memory speed only ever warns.
        (run.warnings if _on_host(run) else missing).append(line)
    if not cells:
        missing.append("no pair could be asked")
    says = f"{cells} figures of {run.fabric.bandwidth_bytes / 1e6:.0f} MB copies"
    return concluded(Criterion.BANDWIDTH, says, troubles, missing)


def _judge(run: Run, way: Way) -> tuple[list[Cell], dict[Pair, list[Limit]]]:
    first = look(run, way)
    medians: dict[object, list[float]] = defaultdict(list)
    for pair, cell in first.items():
        if cell.value is not None:
            medians[class_of(run.fabric, pair)].append(cell.value)
    judged, all_bars = [], {}
    for pair, cell in first.items():
        bars = all_bars[pair] = _limits(run, way, pair, medians[class_of(run.fabric, pair)])
        ceiling = limits.ceiling_gb_s(run.fabric.path(*pair))

        def passes(value: float, bars: list[Limit] = bars, ceiling: float | None = ceiling) -> bool:
            return all(value >= bar.gb_s for bar in bars if bar.blocking) and (
                ceiling is None or value <= ceiling
            )

        def again(pair: Pair = pair) -> float | None:
            return run.timed(way, pair, loops=run.loops(way, pair))

        final = second_look(cell, again, passes)
        run.cells[way, pair] = final
        judged.append(_cell(pair, final, bars, ceiling))
    return judged, all_bars


def _cell(pair: Pair, final: Estimate, bars: list[Limit], ceiling: float | None) -> Cell:
    held = [bar for bar in bars if bar.blocking]
    highest = max((bar.gb_s for bar in held), default=None)
    why, invalid = "", False
    if final.value is None:
        why, invalid = "no sample ended well", True
    elif ceiling is not None and final.value > ceiling:
        invalid = True
        why = f"{final.value:.1f} GB/s is above the {ceiling:.1f} GB/s that the link can carry: a broken measurement"
    return Cell(*pair, final.value, final.samples, highest, final.unstable, invalid, why)


def _limits(run: Run, way: Way, pair: Pair, class_values: list[float]) -> list[Limit]:
    path, then = run.fabric.path(*pair), baseline_cells(run, matrix_name(way)).get(pair)
    bars = []
    if then is not None:
        for part, blocking in ((limits.OF_BASELINE_FAIL, True), (limits.OF_BASELINE_WARN, False)):
            bars.append(Limit(part * then, f"{part} of the baseline's {then:.1f} GB/s", blocking))
    if way[0] is Engine.KERNEL:
        return bars  # criterion E holds kernels to the copy engine of the same pair
    # A baseline that was accepted although it failed is the only thing left to compare with.
    accepted = run.baseline is not None and run.baseline.verdict is Verdict.FAIL
    if (floor := limits.floor(path)) and not accepted:
        bars.append(Limit(floor.fail_gb_s, floor.source, not floor.advisory))
        bars.append(Limit(floor.warn_gb_s, f"healthy hosts stay above this: {floor.source}", False))
    if (hard := limits.hard_floor_gb_s(path)) and not accepted:
        bars.append(Limit(hard, f"{hard:.1f} GB/s: one generation or half the lanes lost", True))
    if then is None and len(class_values) >= 3 and not path.kind.startswith("numa"):
        middle = statistics.median(class_values)
        part = limits.OF_CLASS_FAIL
        bars.append(
            Limit(part * middle, f"{part} of the {middle:.1f} GB/s that its class has in the middle", True)
        )
    return bars


def _on_host(run: Run) -> bool:
    return any(run.fabric.path(*pair).kind.startswith("numa") for pair in run.fabric.pairs[:1])


def _below(run: Run, way: Way, cell: Cell, bars: list[Limit]) -> Trouble | None:
    if cell.value is None or cell.invalid:
        return None
    broken = [bar for bar in bars if cell.value < bar.gb_s]
    if not broken:
        return None
    worst = max(broken, key=lambda bar: (bar.blocking, bar.gb_s))
    # Whoever else uses the same memory, other guests of the same machine too, slows a host copy without a trace:
    # a slow one is worth a line, and only wrong data makes a host fail.
    says = f"{way[0]} {way[1]} {cell.value:.1f} GB/s"
    if run.disturbed.get((way, (cell.src, cell.dst)), False):
        says += "; other processes ran on these CPUs during every sample"
    blocking = worst.blocking and not _on_host(run)
    return Trouble(says, cell.src, cell.dst, blocking, cell.value, worst.gb_s, "GB/s", worst.says)


def _asymmetry(run: Run, way: Way, judged: list[Cell]) -> list[Trouble]:
    values = {(cell.src, cell.dst): cell.value for cell in judged if cell.value and not cell.invalid}
    then = baseline_cells(run, matrix_name(way))
    found = []
    for (src, dst), value in values.items():
        back = values.get((dst, src))
        if (
            back is None
            or src == dst
            or (src, dst) in run.slow
            or run.fabric.path(src, dst).kind.startswith("numa")
        ):
            continue
        ratio = back / value
        before = then[dst, src] / then[src, dst] if (src, dst) in then and (dst, src) in then else 1.0
        if ratio > limits.ASYMMETRY_WARN and ratio > before * limits.ASYMMETRY_WARN:
            says = f"{way[0]} {way[1]} {value:.1f} GB/s, but {back:.1f} GB/s the other way"
            blocking = ratio > limits.ASYMMETRY_FAIL and way[0] is Engine.COPY
            source = (
                "published matrices are symmetric within 1.11; structural asymmetry belongs to a baseline"
            )
            found.append(Trouble(says, src, dst, blocking, ratio, limits.ASYMMETRY_FAIL, "ratio", source))
    return found
