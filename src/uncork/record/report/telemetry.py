"""Readings that were taken while the levels ran: clocks, power, temperature, CPU, whatever there was."""

from collections.abc import Iterator
from typing import Any

from uncork.model.bench import BenchRun
from uncork.record.report import charts
from uncork.record.report.markup import Html, fold, section, table, tag
from uncork.record.report.speed import figure
from uncork.record.report.story import Story

# What is drawn, where it was read; every other reading is in the table.
_DRAWN = {
    "sm_clock_mhz": "MHz",
    "temperature_c": "°C",
    "power_mw": "mW",
    "cpu_busy_mean": "share of all CPUs",
    "cpu_share": "share of one CPU",
}

Series = dict[str, list[tuple[float, float]]]  # reading → minute and value of each level


def telemetry(story: Story) -> Html:
    """The part with readings over the run; empty where none were taken."""
    runs = {
        when: _series(run)
        for when, run in (("before", story.before), ("after", story.after))
        if run is not None
    }
    drawn = [_chart(kind, unit, runs) for kind, unit in _DRAWN.items()]
    body = [_table(when, series) for when, series in runs.items()]
    if not any(body):
        return Html("")
    note = "One reading a level and repeat. Where several devices are read: their mean, and from lowest to highest."
    return section(
        "telemetry",
        "While it ran",
        tag("div", *drawn, class_="two"),
        tag("p", note, class_="note"),
        fold("Every reading", *body),
    )


def _series(run: BenchRun) -> Series:
    levels = sorted(run.levels, key=lambda level: level.started_unix_s)
    series: Series = {}
    for level in levels:
        minute = (level.started_unix_s - levels[0].started_unix_s) / 60
        for name, value in (("client cpu_share", level.client.cpu_share), *_numbers(level.telemetry)):
            series.setdefault(name, []).append((minute, value))
    return series


def _chart(kind: str, unit: str, runs: dict[str, Series]) -> Html:
    name = f"{kind.replace('_', ' ')} over the run"
    lines = []
    for when, series in runs.items():
        by_minute: dict[float, list[float]] = {}
        for reading, points in series.items():
            if reading.removesuffix(" mean").split()[-1] == kind:
                for minute, value in points:
                    by_minute.setdefault(minute, []).append(value)
        if len(by_minute) > 1:
            values = list(by_minute.values())
            means = [sum(one) / len(one) for one in values]
            lines.append(
                (when, list(by_minute), means, [min(one) for one in values], [max(one) for one in values])
            )
    return figure(name, charts.over_time(name, unit, lines))


def _table(when: str, series: Series) -> Html:
    rows = []
    for name, points in series.items():
        values = [value for _, value in points]
        mean = sum(values) / len(values)
        rows.append((name, f"{min(values):,.4g}", f"{mean:,.4g}", f"{max(values):,.4g}", str(len(values))))
    head = ("reading", "lowest", "mean", "highest", "levels")
    return table(f"Readings {when}", head, rows, numbers=(1, 2, 3, 4))


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
