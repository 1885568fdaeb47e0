"""A gate result as lines for a terminal, and its matrices as SVG heat maps for a report."""

import html
import textwrap
from collections.abc import Iterator

from uncork.model.gate import Cell, CriterionResult, GateResult, Matrix, Verdict

_MARK = {Verdict.PASS: "pass", Verdict.FAIL: "FAIL", Verdict.INCONCLUSIVE: "part"}
# From how much of the best figure in the matrix; a glance shows the pair that differs.
_SHADES = ((0.92, "█"), (0.80, "▓"), (0.50, "▒"), (0.0, "░"))
SHOWN = 7  # a GPU that fails towards each of seven others; a person needs no more of one kind
_LEGEND = "█ ≥ 92 % of the best, ▓ ≥ 80 %, ▒ ≥ 50 %, ░ less, ~ unstable, ! invalid"


def lines(result: GateResult, width: int = 80) -> Iterator[str]:
    """The verdict, each criterion, suspects, matrices, figures and what to do next."""
    yield from wrap(f"{result.verdict.upper()}  ", f"{result.tested}", width)
    yield from wrap("      ", f"{result.kernel}; {result.cost_s:.1f} s; {result.baseline}", width)
    yield ""
    for one in result.criteria:
        yield from _criterion(one, result.devices, width)
    if result.suspects:
        yield ""
    for suspect in result.suspects:
        yield from wrap("suspect  ", suspect.says, width)
        yield from wrap("         ", f"look at {suspect.advice}", width)
    for name, said in result.context.items():
        yield from wrap("  read   ", f"{name}: {said}", width)
    for matrix in result.matrices:
        yield ""
        yield from table(matrix, width)
    yield from _figures(result, width)
    for warning in result.warnings:
        yield from wrap("note     ", warning, width)
    yield ""
    yield from wrap("next: ", result.next, width)


def wrap(head: str, text: str, width: int) -> Iterator[str]:
    """`text` behind `head`, later lines indented to it."""
    yield from textwrap.wrap(
        text, width, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False
    ) or [head]


def _criterion(one: CriterionResult, devices: tuple[str, ...], width: int) -> Iterator[str]:
    mark = _MARK[one.verdict] if one.applies else " -  "
    yield from wrap(f"{mark}  {one.criterion:<16}  ", one.says, width)
    for trouble in one.troubles[:SHOWN]:
        pair = f"{devices[trouble.src]}→{devices[trouble.dst]}: " if trouble.src >= 0 else ""
        limit = (
            f" (limit {trouble.limit:.4g} {trouble.unit}: {trouble.source})"
            if trouble.limit is not None
            else ""
        )
        says = f"{'' if trouble.blocking else 'warning: '}{pair}{trouble.says}{limit}"
        yield from wrap("        ", says, width)
    for reason in one.not_run[:SHOWN]:
        yield from wrap("        ", f"not run: {reason}", width)
    more = max(0, len(one.troubles) - SHOWN) + max(0, len(one.not_run) - SHOWN)
    if more:
        yield f"        and {more} more (--json lists all)"


def _figures(result: GateResult, width: int) -> Iterator[str]:
    shown = [figure for figure in result.figures if figure.value is not None]
    if shown:
        yield ""
    for figure in shown:
        yield from wrap(f"{figure.name:<28}", f"{figure.value:.4g} {figure.unit}  ({figure.how})", width)


def heat(matrix: Matrix) -> dict[tuple[int, int], float]:
    """Every measured pair's figure as a part of the best in the matrix, 1.0 for the best."""
    values = {
        (c.src, c.dst): c.value for c in matrix.cells if c.value is not None and c.value > 0 and not c.invalid
    }
    if not values:
        return {}
    if matrix.higher_is_better:
        best = max(values.values())
        return {pair: value / best for pair, value in values.items()}
    best = min(values.values())
    return {pair: best / value for pair, value in values.items()}


def _shade(part: float) -> str:
    return next(shade for least, shade in _SHADES if part >= least)


def _number(cell: Cell | None, parts: dict[tuple[int, int], float]) -> str:
    if cell is None or cell.value is None:
        return f"{'-':>7} "
    mark = "!" if cell.invalid else "~" if cell.unstable else _shade(parts.get((cell.src, cell.dst), 0.0))
    return f"{cell.value:>7.1f}{mark}"


def table(matrix: Matrix, width: int = 80) -> Iterator[str]:
    """A row for each source: figures with a shade where they fit, shades alone where they do not."""
    cells = {(cell.src, cell.dst): cell for cell in matrix.cells}
    parts, labels = heat(matrix), matrix.devices
    side = max(map(len, labels), default=0) + 1
    yield f"{matrix.name} [{matrix.unit}], from row to column"
    if side + 9 * len(labels) <= width:
        yield " " * side + "".join(f"{label:>8} " for label in labels).rstrip()
        for src, label in enumerate(labels):
            row = "".join(f"{_number(cells.get((src, dst)), parts)} " for dst in range(len(labels)))
            yield f"{label:<{side}}{row}".rstrip()
    else:
        values = [cell.value for cell in matrix.cells if cell.value is not None]
        for src, label in enumerate(labels):
            row = "".join(
                _shade(parts[src, dst]) if (src, dst) in parts else "·" for dst in range(len(labels))
            )
            yield f"{label:<{side}}{row}"
        yield f"from {min(values):.1f} to {max(values):.1f} {matrix.unit}" if values else "no figure"
    if len(labels) > 1:
        yield _LEGEND


def svg(matrix: Matrix, cell_px: int = 56) -> str:
    """The matrix as an SVG heat map with its figures; for the HTML report."""
    labels, parts = matrix.devices, heat(matrix)
    side = cell_px * (len(labels) + 1)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{side}" height="{side}" font-family="sans-serif" '
        f'font-size="12" role="img"><title>{html.escape(matrix.name)} [{html.escape(matrix.unit)}]</title>'
    ]
    for at, label in enumerate(labels):
        middle = cell_px * (at + 1.5)
        drawn.append(
            f'<text x="{middle}" y="{cell_px * 0.6}" text-anchor="middle">{html.escape(label)}</text>'
        )
        drawn.append(f'<text x="4" y="{middle + 4}">{html.escape(label)}</text>')
    for cell in matrix.cells:
        part = parts.get((cell.src, cell.dst))
        x, y = cell_px * (cell.dst + 1), cell_px * (cell.src + 1)
        # From red (nothing) over yellow to green (the best); the figure stands in the cell for who sees no colour.
        colour = "#bbbbbb" if part is None else f"hsl({120 * part:.0f}, 60%, 70%)"
        figure = "invalid" if cell.invalid else "-" if cell.value is None else f"{cell.value:.1f}"
        drawn.append(f'<rect x="{x}" y="{y}" width="{cell_px - 2}" height="{cell_px - 2}" fill="{colour}"/>')
        drawn.append(
            f'<text x="{x + cell_px / 2}" y="{y + cell_px / 2 + 4}" text-anchor="middle">{figure}</text>'
        )
    return "".join([*drawn, "</svg>"])
