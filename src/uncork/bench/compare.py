"""Before against after: what the repeats support, and no more."""

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import NormalDist, fmean

import msgspec

from uncork.bench import drift, fingerprints
from uncork.bench.statistics import LogRatio, holm, t_quantile
from uncork.bench.weather import Point, Step, step
from uncork.model.bench import BenchRun, LevelResult
from uncork.model.comparison import Comparison, Difference, Judgement

SCHEMA = 1
CONFIDENCE = 0.95
EQUIVALENT = 0.03  # within ±3 % is the same to a user
# Of the input: more in one run than in the other, and the two did not do the same work. Not less: of short prompts
# most is the chat template, which slots keep or lose by chance (76 and 77 % in two equal runs of llama.cpp).
CACHED = 0.05
_MOST_REPEATS = 1000


class Metric(msgspec.Struct, frozen=True):
    """A figure of a level that is compared; `read` gives None where the level has none."""

    name: str
    unit: str
    higher_is_better: bool
    read: Callable[[LevelResult], float | None]


METRICS = (
    Metric("output tokens/s", "tok/s", True, lambda level: level.output_tok_s or None),
    Metric("TTFT p50", "ms", False, lambda level: level.ttft_ms.p50 if level.ttft_ms else None),
    Metric("TPOT p50", "ms", False, lambda level: level.tpot_ms.p50 if level.tpot_ms else None),
)


def compare(
    before: BenchRun,
    after: BenchRun,
    *,
    tested: Iterable[str] = (),
    floor: Mapping[str, float] | None = None,
) -> Comparison:
    """Compare two runs; `tested` names the fingerprint entries that the change under test may alter.

    `floor` maps metrics to the |ln ratio| that two runs of an unchanged server reach on this host (noise.py): a
    difference below it is not called one. It is of runs one after the other, so runs in turns do not need it.

    The verdict rests on each metric over all levels, corrected for the number of metrics; the levels are
    shown beside it, corrected for all that were asked. Runs that differ in anything else are not comparable.
    """
    allowed, in_turns = tuple(tested), drift.in_turns(before, after)
    found = [*fingerprints.differing(before, after), *_cache_differs(before, after)]
    differs = [one for one in found if not fingerprints.under_test(one.name, allowed)]
    unknown = tuple(fingerprints.unknown_in_both(before, after))
    overall = _overall(before, after)
    floor = {} if in_turns else floor or {}
    if differs or not overall:
        verdict = Judgement.NOT_COMPARABLE if differs else Judgement.UNCLEAR
        why = (
            f"the runs differ in {'; '.join(map(_line, differs))}"
            if differs
            else "no level was measured in both runs"
        )
        says = f"{verdict.value}: {why}"
    else:
        overall = tuple(_above(one, floor) for one in overall)
        verdict = _verdict(overall)
        says = _sentence(verdict, overall)
        says += f"; not known whether equal: {', '.join(unknown)}" if unknown else ""
    return Comparison(
        schema=SCHEMA,
        judgement=verdict,
        says=says,
        before=before.run_id,
        after=after.run_id,
        overall=overall,
        levels=_levels(before, after),
        differs=tuple(map(_line, differs)),
        tested=tuple(_line(one) for one in found if one not in differs),
        unknown=unknown,
        notes=(
            *_grounds(before, after, in_turns, floor),
            *_floor_notes(overall, floor),
            *_notes(before, after),
        ),
    )


def _line(one: fingerprints.Differing) -> str:
    return f"{one.name}: {one.was} → {one.now}"


def _grounds(before: BenchRun, after: BenchRun, in_turns: bool, floor: Mapping[str, float]) -> list[str]:
    """What the verdict rests on, beyond its own figures."""
    said = []
    if not before.fingerprint and not after.fingerprint:
        said.append(
            "neither run says on which host and server settings it was measured: only the workload was compared"
        )
    if in_turns:
        said.append("measured in turns: a drift of the host falls on both sides")
    elif not floor:
        said.append(
            "one run after the other, and no noise floor of this host: what changed between the two by itself"
            " cannot be told from the change (uncork bench --noise 5, or runs in turns: docs/compare.md)"
        )
    return said


def _above(one: Difference, floor: Mapping[str, float]) -> Difference:
    """A difference that an unchanged server shows as well is not called one."""
    called = one.judgement in (Judgement.IMPROVED, Judgement.WORSE)
    if called and abs(math.log(one.ratio)) < floor.get(one.metric, 0.0):
        return msgspec.structs.replace(one, judgement=Judgement.UNCLEAR)
    return one


def _floor_notes(overall: tuple[Difference, ...], floor: Mapping[str, float]) -> list[str]:
    return [
        f"{one.metric}: this host shows up to ±{math.expm1(floor[one.metric]):.1%} with nothing changed"
        for one in overall
        if one.metric in floor
    ]


def _cache_differs(before: BenchRun, after: BenchRun) -> list[fingerprints.Differing]:
    """More of the input from the prefix cache in one run than in the other: they did not do the same work."""
    was, now = _cached_share(before), _cached_share(after)
    if was is None or now is None or abs(was - now) <= CACHED:
        return []
    return [fingerprints.Differing("prefix cache hits", f"{was:.0%} of the input", f"{now:.0%} of the input")]


def _cached_share(run: BenchRun) -> float | None:
    """How much of the input the server took from its prefix cache; None where it does not say."""
    known = [one for one in run.levels if one.valid and one.cached_tokens is not None and one.input_tokens]
    asked = sum(one.input_tokens for one in known)
    return sum(one.cached_tokens or 0 for one in known) / asked if asked else None


def _samples(run: BenchRun, level: str, metric: Metric) -> list[float]:
    results = (one for one in run.levels if one.level == level and one.valid)
    return [value for one in results if (value := metric.read(one)) is not None and value > 0]


def _common_levels(before: BenchRun, after: BenchRun) -> list[str]:
    there = {level.level for level in after.levels}
    return list(dict.fromkeys(level.level for level in before.levels if level.level in there))


class _Row(msgspec.Struct, frozen=True):
    """One line of the answer before it is judged: the figures of both runs and the step between them."""

    level: str
    metric: Metric
    was: list[float]
    now: list[float]
    step: Step | None


def _overall(before: BenchRun, after: BenchRun) -> tuple[Difference, ...]:
    rows = []
    for metric in METRICS:
        pairs = [
            (level, was, now)
            for level in _common_levels(before, after)
            if (was := _samples(before, level, metric)) and (now := _samples(after, level, metric))
        ]
        if pairs:
            old = [math.exp(fmean(map(math.log, was))) for _, was, _ in pairs]
            new = [math.exp(fmean(map(math.log, now))) for _, _, now in pairs]
            names = {level for level, _, _ in pairs}
            rows.append(_Row("", metric, old, new, step(_points(before, after, names, metric))))
    return _judged(rows, (_repeats(before), _repeats(after)))


def _levels(before: BenchRun, after: BenchRun) -> tuple[Difference, ...]:
    rows = []
    for level in _common_levels(before, after):
        for metric in METRICS:
            was, now = _samples(before, level, metric), _samples(after, level, metric)
            if was and now:
                rows.append(_Row(level, metric, was, now, step(_points(before, after, {level}, metric))))
    return _judged(rows, None)


def _points(before: BenchRun, after: BenchRun, names: set[str], metric: Metric) -> list[Point]:
    """The figures of these levels in the order in which they were measured, as far as that is known."""
    return [
        Point(one.level, is_after, one.started_unix_s, math.log(value))
        for is_after, run in ((False, before), (True, after))
        for one in sorted(run.levels, key=lambda one: (one.started_unix_s, one.order))
        if one.level in names and one.valid and (value := metric.read(one)) is not None and value > 0
    ]


def _repeats(run: BenchRun) -> int:
    return len({level.repeat for level in run.levels})


def _judged(rows: list[_Row], counts: tuple[int, int] | None) -> tuple[Difference, ...]:
    corrected = holm([1.0 if row.step is None else row.step.p_value() for row in rows])
    # The interval shown is Bonferroni's over the same family: wider than Holm's steps, and easy to state.
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(rows))
    return tuple(
        _difference(row, p, confidence, counts or (len(row.was), len(row.now)))
        for row, p in zip(rows, corrected, strict=True)
    )


def _difference(row: _Row, p_value: float, confidence: float, counts: tuple[int, int]) -> Difference:
    log = row.step.mean if row.step else fmean(map(math.log, row.now)) - fmean(map(math.log, row.was))
    low, high = row.step.interval(confidence) if row.step else (None, None)
    better = row.metric.higher_is_better
    said = judgement(math.exp(log), row.step, p_value, higher_is_better=better)
    unsettled = row.step is not None and said is Judgement.UNCLEAR
    return Difference(
        level=row.level,
        metric=row.metric.name,
        unit=row.metric.unit,
        higher_is_better=better,
        before=fmean(row.was),
        after=fmean(row.now),
        n_before=counts[0],
        n_after=counts[1],
        ratio=math.exp(log),
        low=low,
        high=high,
        confidence=confidence,
        judgement=said,
        repeats_needed=_repeats_needed(row.step, min(counts), confidence) if row.step and unsettled else None,
    )


def judgement(
    middle: float, ratio: LogRatio | Step | None, p_value: float, *, higher_is_better: bool
) -> Judgement:
    """What a ratio after/before supports; `p_value` is corrected for how many were asked.

    Equivalence comes first: a difference that is certain and too small to matter is none (Schuirmann 1987).
    """
    if ratio and _within(ratio):
        return Judgement.EQUIVALENT
    if p_value < 1 - CONFIDENCE:
        return Judgement.IMPROVED if (middle > 1) == higher_is_better else Judgement.WORSE
    return Judgement.UNCLEAR


def _within(ratio: LogRatio | Step) -> bool:
    """Two one-sided tests: that the ratio is not below the margin, and not above it."""
    low, high = math.log1p(-EQUIVALENT), math.log1p(EQUIVALENT)
    return max(ratio.below(low), 1 - ratio.below(high)) < 1 - CONFIDENCE


def _repeats_needed(ratio: Step, repeats: int, confidence: float) -> int:
    """How many repeats a run would show this difference, or that it is below the margin, if it is real."""
    effect = max(abs(ratio.mean), math.log1p(EQUIVALENT))

    def too_few(count: int) -> bool:
        error = ratio.error * math.sqrt(repeats / count)
        return t_quantile(0.5 + confidence / 2, 2 * count - 2) * error >= effect

    # The normal distribution's answer is a few repeats too low, never too high.
    normal = repeats * (NormalDist().inv_cdf(0.5 + confidence / 2) * ratio.error / effect) ** 2
    count = max(repeats + 1, math.ceil(normal))
    while count < _MOST_REPEATS and too_few(count):
        count += 1
    return min(count, _MOST_REPEATS)


def _verdict(overall: tuple[Difference, ...]) -> Judgement:
    said = [difference.judgement for difference in overall]
    for one in (Judgement.WORSE, Judgement.IMPROVED):
        if one in said:
            return one
    return Judgement.EQUIVALENT if set(said) == {Judgement.EQUIVALENT} else Judgement.UNCLEAR


def _sentence(verdict: Judgement, overall: tuple[Difference, ...]) -> str:
    telling = [one for one in overall if one.judgement is verdict] or list(overall)
    return f"{verdict.value}: " + "; ".join(
        f"{one.metric} {one.ratio - 1:+.1%} ({interval_words(one)})" for one in telling
    )


def interval_words(one: Difference) -> str:
    """The interval of a ratio as a person reads it; one wider than tenfold says that the repeats settle nothing."""
    return percent_interval(one.low, one.high)


def percent_interval(low: float | None, high: float | None) -> str:
    """An interval of ratios as percentages; one wider than tenfold says that the repeats settle nothing."""
    if low is None or high is None:
        return "one repeat: no interval"
    if high > 10 * max(low, 1e-9):
        return "the repeats differ too much for an interval"
    return f"{low - 1:+.1%} to {high - 1:+.1%}"


def _notes(before: BenchRun, after: BenchRun) -> tuple[str, ...]:
    notes = drift.warmer(before, after)
    for name, run in (("before", before), ("after", after)):
        notes += drift.notes(name, run)
        if not run.finished:
            notes.append(f"the run {name} was cut short: {run.stopped}")
        for level in run.levels:
            if not level.valid:
                notes.append(f"{name} {level.level} #{level.repeat} left out: {level.invalid_reason}")
            notes += [f"{name} {level.level} #{level.repeat}: {text}" for text in level.disturbances]
    return tuple(notes)
