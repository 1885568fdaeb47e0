"""A gate result as lines of text for a terminal or a report."""

from collections.abc import Iterator

from uncork.model.gate import CriterionResult, GateResult, Matrix, Verdict

_MARK = {Verdict.PASS: "pass", Verdict.FAIL: "FAIL", Verdict.INCONCLUSIVE: "????"}


def lines(result: GateResult, width: int = 80) -> Iterator[str]:
    """The verdict, each criterion, the matrices, suspects and what to do next."""
    yield f"{result.verdict.upper()}  {result.tested}"
    yield f"      {result.kernel}; {result.cost_s:.1f} s; {result.baseline}"
    yield ""
    for one in result.criteria:
        yield from _criterion(one, result.devices)
    for matrix in result.matrices:
        yield ""
        yield from table(matrix)
    for figure in result.figures:
        if figure.value is not None:
            yield f"{figure.name}: {figure.value:.4g} {figure.unit}  ({figure.how})"
    for suspect in result.suspects:
        yield f"suspect  {suspect.says}"
        yield f"         look at {suspect.advice}"
    for warning in result.warnings:
        yield f"note  {warning}"
    yield ""
    yield f"next: {result.next}"


def _criterion(one: CriterionResult, devices: tuple[str, ...]) -> Iterator[str]:
    mark = _MARK[one.verdict] if one.applies else "  - "
    yield f"{mark}  {one.criterion:<16}  {one.says}"
    for trouble in one.troubles:
        pair = f"{devices[trouble.src]}→{devices[trouble.dst]}: " if trouble.src >= 0 else ""
        yield f"      {'' if trouble.blocking else 'warning: '}{pair}{trouble.says}"
    for reason in one.not_run:
        yield f"      not run: {reason}"


def table(matrix: Matrix) -> Iterator[str]:
    """A matrix with a row for each source."""
    yield f"{matrix.name} [{matrix.unit}]"
    cells = {(cell.src, cell.dst): cell for cell in matrix.cells}
    yield "        " + "".join(f"{label:>9}" for label in matrix.devices)
    for src, label in enumerate(matrix.devices):
        row = ""
        for dst in range(len(matrix.devices)):
            cell = cells.get((src, dst))
            row += f"{cell.value:>9.1f}" if cell and cell.value is not None else f"{'-':>9}"
        yield f"{label:<8}{row}"
