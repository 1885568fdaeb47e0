"""The gate's part: verdict, criteria, and a heat map for every matrix before, after and between."""

from collections.abc import Sequence

from uncork.gate.show import heat
from uncork.model.gate import Cell, CriterionResult, GateResult, Matrix
from uncork.record.report.markup import Html, fold, items, join, section, tag, text
from uncork.record.report.markup import table as plain_table
from uncork.record.report.story import Story
from uncork.record.report.verdict import badge

SHOWN_TROUBLES = 12
SHADE_PERCENT = 55  # of the heat colour at the best figure: its number must stay readable
CHANGE_FULL = 0.25  # a change of a quarter has the full shade
SAME = 0.03  # of a change: less is the same to a user, as in uncork.bench.compare
_LEGEND = (
    "Read from row to column. The darker, the nearer to the best of its matrix (in a map of change: the larger"
    " the change, ▲ better, ▼ worse). Framed: below its limit. ~ unstable, ! impossible for that link."
)


def paths(story: Story) -> Html:
    """Whether the devices talk to each other correctly, and how fast."""
    last = story.gate_after or story.gate_before
    if last is None:
        return Html("")
    body = [
        tag("p", badge(last.verdict.value), text(last.tested), class_="verdictline"),
        tag("p", f"{last.kernel}; {last.baseline}", class_="note"),
        items(f"Suspect: {one.says} Look at {one.advice}." for one in last.suspects),
        _criteria(story.gate_before, last),
        _maps(story.gate_before, story.gate_after),
        _patterns(last),
        fold("Everything the criteria found", *(_troubles(one, last.devices) for one in last.criteria)),
        items(last.warnings),
    ]
    return section("paths", "Whether the devices talk to each other", *body)


def _criteria(before: GateResult | None, last: GateResult) -> Html:
    was = {one.criterion: one for one in before.criteria} if before and before is not last else {}
    rows = []
    for one in last.criteria:
        old = was.get(one.criterion)
        cells = [badge(_word(old)) if old else Html("")] if was else []
        rows.append((one.criterion.value, *cells, badge(_word(one)), text(one.says, 300)))
    head = ("criterion", *(("before", "after") if was else ("verdict",)), "what was measured")
    return plain_table("Criteria", head, rows)


def _word(one: CriterionResult) -> str:
    return one.verdict.value if one.applies else "n/a"


def _troubles(one: CriterionResult, devices: Sequence[str]) -> Html:
    lines = []
    for trouble in one.troubles[:SHOWN_TROUBLES]:
        pair = f"{devices[trouble.src]} → {devices[trouble.dst]}: " if trouble.src >= 0 <= trouble.dst else ""
        limit = (
            f" (limit {trouble.limit:.4g} {trouble.unit}: {trouble.source})"
            if trouble.limit is not None
            else ""
        )
        lines.append(f"{pair}{trouble.says}{limit}")
    lines += [f"not run: {why}" for why in one.not_run[:SHOWN_TROUBLES]]
    more = max(0, len(one.troubles) - SHOWN_TROUBLES) + max(0, len(one.not_run) - SHOWN_TROUBLES)
    lines += [f"and {more} more, in the gate's JSON"] if more else []
    return join([tag("h3", one.criterion.value), items(lines)]) if lines else Html("")


def _maps(before: GateResult | None, after: GateResult | None) -> Html:
    """Every matrix, folded under its span of figures; the first and those with a pair below its limit stand open."""
    old = {one.name: one for one in before.matrices} if before else {}
    new = {one.name: one for one in after.matrices} if after else {}
    parts = []
    for at, name in enumerate(dict.fromkeys([*old, *new])):
        found = [one for one in (old.get(name), new.get(name)) if one]
        names = ("before", "after") if len(found) == 2 else ("measured",)
        maps = [_map(one, when) for one, when in zip(found, names, strict=True)]
        maps += [_change(*found)] if len(found) == 2 else []
        summary = f"{name} [{found[0].unit}]: {' → '.join(map(_span, found))}"
        wrong = any(_short(cell, one) for one in found for cell in one.cells)
        parts.append(fold(summary, tag("div", *maps, class_="heats"), open=at == 0 or wrong, class_="paper"))
    return (
        join([tag("h3", "From device to device"), *parts, tag("p", _LEGEND, class_="note")])
        if parts
        else Html("")
    )


def _span(matrix: Matrix) -> str:
    values = [cell.value for cell in matrix.cells if cell.value is not None]
    if not values:
        return "nothing measured"
    low, high = f"{min(values):,.4g}", f"{max(values):,.4g}"
    return low if low == high else f"{low} to {high}"


def _short(cell: Cell, matrix: Matrix) -> bool:
    """Whether the pair is below (a latency: above) the limit that it was held to."""
    if cell.limit is None or cell.value is None:
        return False
    return cell.value < cell.limit if matrix.higher_is_better else cell.value > cell.limit


def _map(matrix: Matrix, when: str) -> Html:
    shades = heat(matrix)
    largest = max((cell.value for cell in matrix.cells if cell.value is not None), default=0.0)
    decimals = 0 if largest >= 1000 else 1 if largest >= 10 else 2
    cells = {(cell.src, cell.dst): _measured(cell, shades, matrix, decimals) for cell in matrix.cells}
    return _square(f"{matrix.name} {when} [{matrix.unit}]", when, matrix.devices, cells)


def _measured(cell: Cell, shades: dict[tuple[int, int], float], matrix: Matrix, decimals: int) -> Html:
    if cell.value is None:
        return tag("td", "–", title=cell.why or None)
    mark = "!" if cell.invalid else "~" if cell.unstable else ""
    share = shades.get((cell.src, cell.dst), 0.0)
    title = f"limit {cell.limit:.4g} {matrix.unit}" if cell.limit is not None else None
    shown = f"{cell.value:,.{decimals}f}{mark}"
    style = f"--q:{share**3 * SHADE_PERCENT:.0f}%"  # cubed: figures lie near the best, and differences should show
    return tag("td", shown, style=style, class_="wrong" if _short(cell, matrix) else None, title=title)


def _change(first: Matrix, second: Matrix) -> Html:
    old = {(cell.src, cell.dst): cell.value for cell in first.cells}
    cells = {}
    for cell in second.cells:
        was = old.get((cell.src, cell.dst))
        if not was or not cell.value:
            cells[cell.src, cell.dst] = tag("td", "–")
            continue
        change = cell.value / was - 1
        better = (change > 0) == second.higher_is_better
        mark = "" if abs(change) < SAME else "▲" if better else "▼"
        shade = min(1.0, abs(change) / CHANGE_FULL) * SHADE_PERCENT
        cells[cell.src, cell.dst] = tag(
            "td",
            f"{change:+.0%}{mark}" if abs(change) >= 0.005 else "0",
            style=f"--q:{shade:.0f}%",
            class_="more" if better else "less",
        )
    return _square(f"{second.name}, change", "change", second.devices, cells)


def _square(label: str, caption: str, devices: Sequence[str], cells: dict[tuple[int, int], Html]) -> Html:
    heads = tag("tr", tag("td", "from \\ to"), *(tag("th", name, scope="col") for name in devices))
    none = tag("td", "")
    rows = [
        tag("tr", tag("th", name, scope="row"), *(cells.get((src, dst), none) for dst in range(len(devices))))
        for src, name in enumerate(devices)
    ]
    whole = tag(
        "table",
        tag("caption", caption),
        tag("thead", heads),
        tag("tbody", *rows),
        class_="heat",
        aria_label=label,
    )
    return tag("div", whole, class_="scroll", tabindex=0, role="group", aria_label=label)


def _patterns(gate: GateResult) -> Html:
    rows = [
        (one.name, one.direction, str(len(one.pairs)), _figure(one.gb_s), _figure(one.bound_gb_s))
        for one in gate.patterns
    ]
    head = ("pattern", "direction", "pairs", "GB/s together", "single pairs add up to")
    listed = plain_table("Several transfers at once", head, rows, numbers=(2, 3, 4))
    figures = [
        (one.name, _figure(one.value), one.unit, text(one.how, 200)) for one in gate.figures if one.value
    ]
    return fold(
        "Several transfers at once, and single figures",
        listed,
        plain_table("Single figures", ("figure", "value", "unit", "how"), figures, numbers=(1,)),
    )


def _figure(value: float | None) -> str:
    return "not measured" if value is None else f"{value:,.4g}"
