"""Readings that were taken while the levels ran: clocks, power, temperature, CPU, whatever there was."""

from collections.abc import Iterator, Sequence
from typing import Any

from uncork.model.bench import BenchRun
from uncork.record.report import charts
from uncork.record.report.markup import Html, join, section, table, tag
from uncork.record.report.speed import figure
from uncork.record.report.story import Story

_DRAWN = 6  # readings of one unit in one chart; the table has all
_UNITS = {
    "_c": "°C",
    "_w": "W",
    "_mhz": "MHz",
    "_percent": "%",
    "_share": "share",
    "_gb_s": "GB/s",
    "_mb": "MB",
}


def telemetry(story: Story) -> Html:
    """The part with readings over the run; empty where none were taken."""
    parts = [
        _run(when, run) for when, run in (("before", story.before), ("after", story.after)) if run is not None
    ]
    if not any(parts):
        return Html("")
    return section("telemetry", "While it ran", *parts)


def _run(when: str, run: BenchRun) -> Html:
    levels = sorted(run.levels, key=lambda level: level.started_unix_s)
    if not levels:
        return Html("")
    start_s = levels[0].started_unix_s
    series: dict[str, tuple[list[float], list[float]]] = {}
    for level in levels:
        minute = (level.started_unix_s - start_s) / 60
        readings = [("client cpu_share", level.client.cpu_share), *_numbers(level.telemetry)]
        for name, value in readings:
            minutes, values = series.setdefault(name, ([], []))
            minutes.append(minute)
            values.append(value)
    by_unit: dict[str, list[str]] = {}
    for name in series:
        by_unit.setdefault(_unit(name), []).append(name)
    drawn = [_chart(when, unit, names, series) for unit, names in by_unit.items() if unit]
    rows = [
        (
            name,
            f"{min(values):,.4g}",
            f"{sum(values) / len(values):,.4g}",
            f"{max(values):,.4g}",
            str(len(values)),
        )
        for name, (_, values) in series.items()
    ]
    head = ("reading", "lowest", "mean", "highest", "levels")
    return join(
        [
            tag("div", *drawn, class_="two"),
            table(f"Readings, {when}: one a level and repeat", head, rows, numbers=(1, 2, 3, 4)),
        ]
    )


def _chart(
    when: str, unit: str, names: Sequence[str], series: dict[str, tuple[list[float], list[float]]]
) -> Html:
    name = f"{unit} over the run {when}"
    lines = [(one, *series[one]) for one in names[:_DRAWN] if len(series[one][1]) > 1]
    return figure(name, charts.over_time(name, unit, lines)) if lines else Html("")


def _numbers(readings: dict[str, Any], head: str = "") -> Iterator[tuple[str, float]]:
    """Every number in nested readings with its path as its name; a list of numbers is its mean."""
    for key, value in readings.items():
        name = f"{head}{key}"
        if isinstance(value, bool):
            continue
        if isinstance(value, (int, float)):
            yield name, float(value)
        elif isinstance(value, dict):
            yield from _numbers(value, f"{name} ")
        elif isinstance(value, list) and value and all(isinstance(one, (int, float)) for one in value):
            yield name, sum(value) / len(value)


def _unit(name: str) -> str:
    return next((unit for ending, unit in _UNITS.items() if ending in f"{name} ".replace(" ", "_")), "")
