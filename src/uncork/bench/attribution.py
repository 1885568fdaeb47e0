"""What each group of changes was worth, from blocks of runs with it set and put back.

A block is set, put back, put back, set (ABBA): what drifts evenly over its four runs falls out of the difference
of the two means. The block is the unit; its runs share one weather and one pair of writes.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import msgspec

from uncork.bench.compare import CONFIDENCE, METRICS, Metric, judgement, percent_interval
from uncork.bench.statistics import LogRatio, holm, paired
from uncork.model.attribution import Attribution, Worth
from uncork.model.bench import BenchRun
from uncork.model.comparison import Judgement

SCHEMA = 1


class Block(msgspec.Struct, frozen=True):
    """The runs of one block: with all changes set, and with one group put back."""

    on: tuple[BenchRun, ...]
    off: tuple[BenchRun, ...]


def attribution(groups: Mapping[str, tuple[str, Sequence[Block]]], notes: Iterable[str] = ()) -> Attribution:
    """Judge each group (name → title and blocks), corrected over all groups and metrics (Holm).

    The interval shown is Bonferroni's over the same family, as in `compare`.
    """
    rows = [
        (name, title, metric, logs)
        for name, (title, blocks) in groups.items()
        for metric in METRICS
        if (logs := [log for block in blocks if (log := block_log_ratio(block, metric)) is not None])
    ]
    ratios = [paired(logs) for *_, logs in rows]
    corrected = holm([1.0 if ratio is None else ratio.p_value() for ratio in ratios])
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(rows))
    worth = tuple(
        _worth(name, title, metric, logs, ratio, p, confidence)
        for (name, title, metric, logs), ratio, p in zip(rows, ratios, corrected, strict=True)
    )
    return Attribution(SCHEMA, _says(worth), worth, tuple(notes))


def block_log_ratio(block: Block, metric: Metric) -> float | None:
    """ln(set / put back) of one block, the mean over the levels that every run of it has; None of none."""
    on, off = ([_values(run, metric) for run in runs] for runs in (block.on, block.off))
    if not on or not off:
        return None
    common = set.intersection(*(set(values) for values in (*on, *off)))
    logs = [
        fmean(math.log(values[level]) for values in on) - fmean(math.log(values[level]) for values in off)
        for level in sorted(common)
    ]
    return fmean(logs) if logs else None


def unusable(block: Block) -> list[str]:
    """Why a block gives no figure: each of its runs without a valid level, and its first reason."""
    runs = (("set", block.on), ("put back", block.off))
    return [
        f"{name} #{number}: {run.levels[0].invalid_reason if run.levels else 'nothing was measured'}"
        for name, several in runs
        for number, run in enumerate(several, 1)
        if not any(level.valid for level in run.levels)
    ]


def _values(run: BenchRun, metric: Metric) -> dict[str, float]:
    return {
        level.level: value
        for level in run.levels
        if level.valid and (value := metric.read(level)) is not None and value > 0
    }


def _worth(
    name: str,
    title: str,
    metric: Metric,
    logs: list[float],
    ratio: LogRatio | None,
    p_value: float,
    confidence: float,
) -> Worth:
    middle = math.exp(fmean(logs))
    low, high = ratio.interval(confidence) if ratio else (None, None)
    return Worth(
        *(name, title, metric.name, metric.unit, metric.higher_is_better, len(logs)),
        *(middle, low, high, confidence),
        judgement(middle, ratio, p_value, higher_is_better=metric.higher_is_better),
    )


def _says(worth: tuple[Worth, ...]) -> str:
    shown = [one for one in worth if one.judgement in (Judgement.IMPROVED, Judgement.WORSE)]
    groups = len(dict.fromkeys(one.group for one in worth))
    if not shown:
        return f"{groups} groups measured; none showed a difference" if groups else "no group was measured"
    return "; ".join(
        f"{one.title}: {one.metric} {one.ratio - 1:+.1%} ({percent_interval(one.low, one.high)})"
        for one in shown
    )
