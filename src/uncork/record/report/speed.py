"""What was measured: throughput and latency over requests at once, the bound's tiers, where the time went."""

from collections.abc import Sequence

from uncork.bench.compare import interval_words
from uncork.bound import waterfall
from uncork.bound.levels import Against
from uncork.model.bench import BenchRun, LevelResult
from uncork.model.bound import Waterfall
from uncork.model.comparison import Comparison, Difference
from uncork.record.report import charts
from uncork.record.report.markup import Html, fold, items, join, section, table, tag, text
from uncork.record.report.series import (
    Curve,
    against,
    curves,
    imported_points,
    output_tok_s,
    p99_itl_ms,
    points_of,
    tiers,
    tpot_ms,
    ttft_p50_ms,
)
from uncork.record.report.story import Story
from uncork.record.report.verdict import badge

_INTERVALS = (
    "Marks are means over repeats; bars are the 95 % interval of that mean, or lowest to highest where a"
    " level has fewer than three repeats."
)
_TIERS = (
    "Tiers are what this model can give on this hardware at most: silicon (its memory and arithmetic), fabric"
    " (with the collectives), engine (with the launch of kernels). They count decoding alone; what was measured"
    " includes the prompts."
)


def speed(stories: Sequence[Story]) -> Html:
    """The part with the curves; empty where nothing was measured."""
    throughput = curves(stories, output_tok_s)
    if not throughput:
        return Html("")
    limits = tiers(against(stories[0], stories[0].after) or against(stories[0], stories[0].before))
    body = [
        _missing(),
        _drawn("Throughput, all requests together", throughput, "output tokens/s", limits, wide=True),
        tag("p", _INTERVALS + (f" {_TIERS}" if limits else ""), class_="note"),
        tag(
            "div",
            _drawn("Time to the first token, median", curves(stories, ttft_p50_ms), "ms"),
            _drawn("Time per token after the first, mean", curves(stories, tpot_ms), "ms"),
            class_="two",
        ),
        *(_comparison(story.comparison) for story in stories if story.comparison),
        fold("The numbers of the curves", _numbers(stories, limits)),
        fold("Every level and repeat", *(_levels(story, when, run) for story, when, run in _runs(stories))),
    ]
    return section("speed", "How fast it is", *body)


def _missing() -> Html:
    if charts.available():
        return Html("")
    return tag(
        "p", "No curves: matplotlib is not installed (uncork[report]). Their numbers stand in the tables."
    )


def _drawn(
    name: str, lines: Sequence[Curve], unit: str, limits: Sequence[Curve] = (), *, wide: bool = False
) -> Html:
    drawn = charts.over_users(name, lines, unit, tiers=limits, wide=wide)
    return figure(name, drawn)


def figure(name: str, drawn: Html) -> Html:
    """A chart with its name, in a box that scrolls where the page is narrow."""
    if not drawn:
        return Html("")
    box = tag("div", drawn, class_="draw", tabindex=0, role="group", aria_label=name)
    return tag("figure", tag("figcaption", name), box)


def _runs(stories: Sequence[Story]) -> list[tuple[Story, str, BenchRun]]:
    found = []
    for story in stories:
        for when, run in (("before", story.before), ("after", story.after)):
            if run is not None:
                found.append((story, when, run))
    return found


def _numbers(stories: Sequence[Story], limits: Sequence[Curve]) -> Html:
    rows = []
    reads = (
        ("output tokens/s", output_tok_s),
        ("TTFT p50 ms", ttft_p50_ms),
        ("TPOT mean ms", tpot_ms),
        ("ITL p99 ms", p99_itl_ms),
    )
    for name, read in reads:
        for curve in curves(stories, read):
            for point in curve.points:
                span = f"{point.low:,.4g} to {point.high:,.4g}"
                rows.append((name, curve.label, str(point.x), f"{point.y:,.4g}", span, str(point.n)))
    for curve in limits:
        rows += [
            ("output tokens/s", curve.label, str(point.x), f"{point.y:,.4g}", "", "")
            for point in curve.points
        ]
    head = ("figure", "run", "at once", "mean", "interval", "repeats")
    return table("Means over repeats and their intervals", head, rows, numbers=(2, 3, 4, 5))


def _levels(story: Story, when: str, run: BenchRun) -> Html:
    rows = [_level(one) for one in run.levels]
    head = (
        "level",
        "repeat",
        "output tok/s",
        "TTFT p50 / p99 ms",
        "TPOT ms",
        "ITL p99 ms",
        "completed",
        "used",
    )
    caption = f"{story.name} {when}: {run.run_id}"
    cut = "" if run.finished else f"This run was cut short: {run.stopped or 'it still goes on'}."
    return join([tag("p", cut) if cut else "", table(caption, head, rows, numbers=range(1, 7))])


def _level(one: LevelResult) -> tuple[str, ...]:
    ttft = one.ttft_ms
    tpot, itl = tpot_ms(one), p99_itl_ms(one)
    return (
        one.level,
        str(one.repeat + 1),
        f"{one.output_tok_s:,.1f}",
        f"{ttft.p50:,.1f} / {ttft.p99:,.1f}" if ttft else "",
        "" if tpot is None else f"{tpot:,.2f}",
        "" if itl is None else f"{itl:,.2f}",
        f"{one.completed}/{one.requests}",
        "yes" if one.valid else f"no: {one.invalid_reason}",
    )


def _comparison(found: Comparison) -> Html:
    head = ("metric", "level", "before", "after", "change", "interval", "repeats", "verdict")
    notes = [f"Differs and was not under test: {line}" for line in found.differs]
    notes += [f"Under test: {line}" for line in found.tested]
    body = [
        tag("h3", "Before against after"),
        tag("p", tag("b", text(found.says))),
        table("Over all levels", head, map(_difference, found.overall), numbers=(2, 3, 4, 6)),
        items(notes),
        fold("Level by level", table("", head, map(_difference, found.levels), numbers=(2, 3, 4, 6))),
        fold(f"{len(found.notes)} remarks", items(found.notes)) if found.notes else Html(""),
    ]
    return join(body)


def _difference(one: Difference) -> tuple[str, ...]:
    return (
        one.metric,
        one.level or "all",
        f"{one.before:,.4g} {one.unit}",
        f"{one.after:,.4g} {one.unit}",
        f"{one.ratio - 1:+.1%}",
        interval_words(one),
        f"{one.n_before}/{one.n_after}",
        badge(one.judgement.value),
    )


def where_time_goes(story: Story) -> Html:
    """The waterfall at the fewest requests at once, before and after, and how near each level comes to its tiers."""
    found = {name: against(story, run) for name, run in (("before", story.before), ("after", story.after))}
    lowest = [(name, rows[0]) for name, rows in found.items() if rows]
    if not lowest:
        return Html("")
    falls = [(name, row.waterfall) for name, row in lowest]
    users = lowest[0][1].measured.concurrency
    title = f"One token's time, {users} at once"
    body = [
        figure(title, charts.waterfalls(title, falls)),
        _bars(falls),
        fold(
            "Share of each tier at every level",
            *(_shares(name, rows) for name, rows in found.items() if rows),
        ),
        fold("What the bound assumes", items(lowest[-1][1].bound.assumptions)),
    ]
    return section("waterfall", "Where the time goes", *body)


def _bars(falls: Sequence[tuple[str, Waterfall]]) -> Html:
    names = [name for name, _ in falls]
    parts = list(dict.fromkeys(bar.part for _, one in falls for bar in one.bars))
    by_run = [{bar.part: bar for bar in one.bars} for _, one in falls]
    rows = []
    for part in parts:
        bars = [bars.get(part) for bars in by_run]
        last = next(bar for bar in reversed(bars) if bar)
        figures = [f"{bar.ms:,.3f}" if bar else "" for bar in bars]
        rows.append((part, *figures, ", ".join(last.checks), last.advice))
    rows.append(("measured", *(f"{one.measured_ms:,.3f}" for _, one in falls), "", ""))
    head = ("part", *(f"{name} ms" for name in names), "checks", "what to do about it")
    listed = table("The bars sum to the measured time", head, rows, numbers=range(1, 1 + len(names)))
    if len(falls) < 2:
        return listed
    moved = waterfall.moved(falls[0][1], falls[1][1])
    lines = (
        f"{one.part}: {one.delta_ms:+,.3f} ms ({one.before_ms:,.3f} → {one.after_ms:,.3f})" for one in moved
    )
    return listed + fold("What moved, the largest first", items(lines))


def _shares(name: str, rows: Sequence[Against]) -> Html:
    def share(pair: tuple[float, float]) -> str:
        low, high = (f"{one:.1%}" for one in pair)
        return low if low == high else f"{low} to {high}"

    listed = [
        (
            row.measured.level,
            f"{row.measured.tok_s:,.1f}",
            *(share(getattr(row.efficiency, tier)) for tier in ("silicon", "fabric", "engine")),
        )
        for row in rows
    ]
    head = ("level", "decoded tok/s", "of silicon", "of fabric", "of engine")
    return table(f"Share of each tier, {name}", head, listed, numbers=(1, 2, 3, 4))


def overlay(stories: Sequence[Story]) -> Html:
    """One line a run where several are overlaid."""
    if len(stories) < 2:
        return Html("")
    rows = []
    for story, when, run in _runs(stories):
        points = points_of(run, output_tok_s)
        best = max(points, key=lambda point: point.y) if points else None
        top = f"{best.y:,.1f} at {best.x}" if best else "nothing usable"
        rows.append((f"{story.name} {when}", story.host, run.model, run.workload_hash[:12], top))
    for story in stories:
        if story.imported:
            points = imported_points(story)
            best = max(points, key=lambda point: point.y) if points else None
            top = f"{best.y:,.1f} at {best.x}" if best else "no level says how many were at once"
            first = story.imported[0]
            rows.append((story.name, "", first.model or "not said", f"imported: {first.tool}", top))
    head = ("run", "host", "model", "workload", "best output tokens/s")
    note = "Runs with different models or workloads are drawn together, not judged against each other."
    return section(
        "runs", "Runs shown here", table("", head, rows, numbers=(4,)), tag("p", note, class_="note")
    )
