"""Charts as inline SVG, drawn by matplotlib: no script, colours from the page's style sheet, vector on paper."""

import functools
import importlib.util
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

from uncork.model.bound import Waterfall
from uncork.record.report.markup import Html, tag
from uncork.record.report.series import Curve

# Colours that matplotlib writes and the page replaces by variables of its style sheet: light, dark and paper.
_INK, _MUTED, _GRID, _LIMIT, _PAPER = "#010203", "#010204", "#010205", "#010206", "#010207"
_SERIES = ("#010210", "#010211", "#010212", "#010213", "#010214", "#010215")
_VARIABLES = {
    _INK: "--ink",
    _MUTED: "--muted",
    _GRID: "--line",
    _LIMIT: "--limit",
    _PAPER: "--card",
} | {colour: f"--s{at}" for at, colour in enumerate(_SERIES)}
_MARKERS = ("o", "s", "^", "D", "v", "P")
_LINES = ("--", "-", "-.", ":", "--", "-")
_TIERS = ("-", "--", ":")
_WIDTH_IN, _HEIGHT_IN = 7.2, 3.7

Line = tuple[str, Sequence[float], Sequence[float], Sequence[float], Sequence[float]]


@functools.cache
def available() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def over_users(
    name: str, curves: Sequence[Curve], unit: str, *, tiers: Sequence[Curve] = (), wide: bool = False
) -> Html:
    """A figure over users at once with intervals; `tiers` are limits that nothing can pass."""
    if not curves or not available():
        return Html("")
    with _style():
        figure, axes = _figure(_WIDTH_IN * (1.35 if wide else 1), _HEIGHT_IN)
        for at, tier in enumerate(tiers):
            axes.plot(*_xy(tier), color=_LIMIT, linestyle=_TIERS[at % 3], linewidth=1.6, label=tier.label)
        for curve in curves:
            _curve(axes, curve, curve.index)
        _scales(axes, [*curves, *tiers])
        axes.set_xlabel("requests at once")
        axes.set_ylabel(unit)
        _legend(axes)
        return _svg(figure, name, _says(name, unit, curves, tiers))


def _curve(axes: Any, curve: Curve, at: int) -> None:
    xs, ys = _xy(curve)
    below = [point.y - point.low for point in curve.points]
    above = [point.high - point.y for point in curve.points]
    axes.errorbar(
        xs,
        ys,
        yerr=(below, above),
        color=_SERIES[at % 6],
        marker=_MARKERS[at % 6],
        linestyle=_LINES[at % 6],
        markersize=5,
        linewidth=1.8,
        capsize=3,
        label=curve.label,
    )


def waterfalls(name: str, found: Sequence[tuple[str, Waterfall]]) -> Html:
    """Where a token's time went: a bar a part, each beginning where the one above it ends."""
    if not found or not available():
        return Html("")
    parts = list(dict.fromkeys(bar.part for _, one in found for bar in one.bars))
    height = 0.8 / len(found)
    with _style():
        figure, axes = _figure(_WIDTH_IN * 1.35, 1.0 + 0.26 * len(parts) * len(found), 1.6)
        for at, (label, one) in enumerate(found):
            _falls(axes, one, parts, at, height, label)
        axes.set_yticks([row + 0.4 - height / 2 for row in range(len(parts) + 1)], [*parts, "measured"])
        axes.invert_yaxis()
        axes.set_xlabel("ms per token of one user")
        axes.margins(x=0.14)
        axes.grid(axis="y", visible=False)
        if len(found) > 1:
            _legend(axes)
        says = "; ".join(
            f"{label}: " + ", ".join(f"{bar.part} {bar.ms:.3f} ms" for bar in one.bars)
            for label, one in found
        )
        return _svg(figure, name, says)


def _falls(axes: Any, one: Waterfall, parts: Sequence[str], at: int, height: float, label: str) -> None:
    by_part = {bar.part: bar.ms for bar in one.bars}
    start = 0.0
    rows: list[tuple[float, float, float]] = []
    for row, part in enumerate(parts):
        rows.append((row + at * height, start, by_part.get(part, 0.0)))
        start += by_part.get(part, 0.0)
    rows.append((len(parts) + at * height, 0.0, one.measured_ms))
    axes.barh(
        [row for row, _, _ in rows],
        [ms for _, _, ms in rows],
        left=[left for _, left, _ in rows],
        height=height * 0.92,
        color=_SERIES[at],
        edgecolor=_PAPER,
        hatch="" if at else "///",
        label=label,
    )
    for place, left, ms in rows:
        axes.annotate(
            f"{ms:,.3f}",
            (max(left, left + ms), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )


def over_time(name: str, unit: str, lines: Sequence[Line]) -> Html:
    """Readings over the minutes of a run; what several devices read is a mean with its lowest and highest."""
    if not lines or not available():
        return Html("")
    with _style():
        figure, axes = _figure(_WIDTH_IN, 2.6)
        for at, (label, minutes, means, lows, highs) in enumerate(lines):
            axes.fill_between(minutes, lows, highs, color=_SERIES[at % 6], alpha=0.2, linewidth=0)
            axes.plot(
                minutes,
                means,
                color=_SERIES[at % 6],
                marker=_MARKERS[at % 6],
                markersize=4,
                linestyle=_LINES[at % 6],
                label=label,
            )
        axes.set_xlabel("minutes since the first level")
        axes.set_ylabel(unit)
        axes.set_ylim(bottom=0)
        _legend(axes)
        return _svg(figure, name, _said_over_time(name, unit, lines))


def _said_over_time(name: str, unit: str, lines: Sequence[Line]) -> str:
    spans = (f"{label}: {min(lows):,.4g} to {max(highs):,.4g} {unit}" for label, _, _, lows, highs in lines)
    return f"{name}. " + "; ".join(spans)


def _style() -> Any:
    import matplotlib

    return matplotlib.rc_context(
        {
            "svg.fonttype": "none",  # text stays text: searchable, selectable, in the reader's own font
            "svg.hashsalt": "uncork",
            "text.parse_math": False,  # a dollar sign in a label is a dollar sign
            "font.size": 10,
            **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), _INK),
            **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), _MUTED),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": _GRID,
            "grid.linewidth": 0.6,
            "axes.axisbelow": True,
            "axes.facecolor": "none",
            "figure.facecolor": "none",
            "legend.frameon": False,
            "hatch.linewidth": 1.0,
        }
    )


def _figure(width_in: float, height_in: float, left_in: float = 0.85) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    # Fixed margins: a layout engine draws everything twice.
    figure = Figure(figsize=(width_in, height_in))
    figure.subplots_adjust(left_in / width_in, 0.55 / height_in, 1 - 0.15 / width_in, 1 - 0.3 / height_in)
    return figure, figure.add_subplot()


def _legend(axes: Any) -> None:
    """Above the curves, where it hides none of them, in as many rows as the labels need."""
    figure, labels = axes.figure, axes.get_legend_handles_labels()[1]
    width_in, height_in = figure.get_size_inches()
    columns = max(1, int(width_in * 13 // (max(map(len, labels)) + 7)))  # 13 characters of 9 points an inch
    rows = -(-len(labels) // columns)
    figure.subplots_adjust(top=1 - (0.1 + 0.2 * rows) / height_in)
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=columns,
        fontsize=9,
        borderpad=0,
        borderaxespad=0.3,
        columnspacing=1.4,
        handlelength=2.4,
    )


def _xy(curve: Curve) -> tuple[list[float], list[float]]:
    return [point.x for point in curve.points], [point.y for point in curve.points]


def _scales(axes: Any, curves: Sequence[Curve]) -> None:
    """Every level has its tick; values that differ twentyfold need a logarithmic scale."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

    users = sorted({point.x for curve in curves for point in curve.points})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(users))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    values = [point.y for curve in curves for point in curve.points]
    if max(values) > 20 * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _says(name: str, unit: str, curves: Iterable[Curve], tiers: Iterable[Curve]) -> str:
    said = [f"{name} in {unit}."]
    for curve in [*curves, *tiers]:
        first, last = curve.points[0], curve.points[-1]
        said.append(
            f"{curve.label}: {first.y:,.4g} at {first.x}, {last.y:,.4g} at {last.x} requests at once."
        )
    return " ".join(said)


def _svg(figure: Any, name: str, says: str) -> Html:
    """The figure as inline SVG: its ids made its own, its colours variables, its words for who cannot see it."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    drawn = out.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    drawn = re.sub(r"<!--.*?-->\s*|<metadata>.*?</metadata>|<style.*?</style>", "", drawn, flags=re.DOTALL)
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    drawn = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{slug}-", drawn)
    drawn = re.sub(r"#0102[01][0-9a-f]", lambda match: f"var({_VARIABLES[match[0]]})", drawn)
    drawn = drawn.replace("'DejaVu Sans'", "inherit").replace("xlink:href", "href")
    head, rest = drawn.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    words = tag("title", name, id=f"{slug}-t") + tag("desc", says, id=f"{slug}-d")
    label = f'role="img" aria-labelledby="{slug}-t {slug}-d"'
    return Html(f'<svg xmlns="http://www.w3.org/2000/svg" {box[0] if box else ""} {label}>{words}{rest}')
