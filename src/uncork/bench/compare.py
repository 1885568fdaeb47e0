"""Before against after: what the repeats support, and no more."""

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import NormalDist, fmean

import msgspec

from uncork.bench import drift
from uncork.bench.statistics import LogRatio, holm, log_ratio, pooled, t_quantile
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
    Metric("TPOT mean", "ms", False, lambda level: level.tpot_ms.mean if level.tpot_ms else None),
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
    difference below it is not called one.

    The verdict rests on each metric over all levels, corrected for the number of metrics; the levels are
    shown beside it, corrected for all that were asked. Runs that differ in anything else are not comparable.
    """
    allowed = set(tested)
    differs: list[str] = []
    tested_found: list[str] = []
    for name, was, now in differences(before, after):
        line = f"{name}: {was} → {now}"
        (tested_found if name in allowed else differs).append(line)
    overall = _overall(before, after)
    if differs or not overall:
        verdict = Judgement.NOT_COMPARABLE if differs else Judgement.UNCLEAR
        why = f"the runs differ in {'; '.join(differs)}" if differs else "no level was measured in both runs"
        says = f"{verdict.value}: {why}"
    else:
        overall = tuple(_above(one, floor or {}) for one in overall)
        verdict, says = _judged_whole(before, after, overall)
    return Comparison(
        schema=SCHEMA,
        judgement=verdict,
        says=says,
        before=before.run_id,
        after=after.run_id,
        overall=overall,
        levels=_levels(before, after),
        differs=tuple(differs),
        tested=tuple(tested_found),
        notes=(*_floor_notes(overall, floor or {}), *_notes(before, after)),
    )


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


def _judged_whole(
    before: BenchRun, after: BenchRun, overall: tuple[Difference, ...]
) -> tuple[Judgement, str]:
    """The verdict, which a drift as large as the difference takes away, and its sentence."""
    verdict = _verdict(overall)
    largest = max(abs(math.log(one.ratio)) for one in overall)
    why = drift.hides(before, after, largest)
    if why and verdict in (Judgement.IMPROVED, Judgement.WORSE):
        return Judgement.UNCLEAR, f"{Judgement.UNCLEAR.value}: {why}, half of the difference or more"
    return verdict, _sentence(verdict, overall)


def differences(before: BenchRun, after: BenchRun) -> Iterable[tuple[str, str, str]]:
    """What differs between the fingerprints, the workloads and the definitions: (name, before, after)."""
    old = {"metrics": before.metrics, "model": before.model, "workload": before.workload_hash}
    new = {"metrics": after.metrics, "model": after.model, "workload": after.workload_hash}
    cached = _cached_share(before), _cached_share(after)
    if None not in cached and abs((cached[0] or 0) - (cached[1] or 0)) > CACHED:
        old["prefix cache hits"], new["prefix cache hits"] = (f"{share:.0%} of the input" for share in cached)
    old, new = old | before.fingerprint, new | after.fingerprint
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield name, str(old.get(name, "(absent)")), str(new.get(name, "(absent)"))


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


def _overall(before: BenchRun, after: BenchRun) -> tuple[Difference, ...]:
    rows: list[tuple[str, Metric, list[float], list[float], LogRatio | None]] = []
    for metric in METRICS:
        old, new, ratios = [], [], []
        for level in _common_levels(before, after):
            was, now = _samples(before, level, metric), _samples(after, level, metric)
            if not was or not now:
                continue
            old.append(math.exp(fmean(map(math.log, was))))
            new.append(math.exp(fmean(map(math.log, now))))
            if ratio := log_ratio(was, now):
                ratios.append(ratio)
        if old:
            rows.append(("", metric, old, new, pooled(ratios) if len(ratios) == len(old) else None))
    counts = _repeats(before), _repeats(after)
    return _judged(rows, counts)


def _levels(before: BenchRun, after: BenchRun) -> tuple[Difference, ...]:
    rows = []
    for level in _common_levels(before, after):
        for metric in METRICS:
            was, now = _samples(before, level, metric), _samples(after, level, metric)
            if was and now:
                rows.append((level, metric, was, now, log_ratio(was, now)))
    return _judged(rows, None)


def _repeats(run: BenchRun) -> int:
    return len({level.repeat for level in run.levels})


def _judged(
    rows: list[tuple[str, Metric, list[float], list[float], LogRatio | None]], counts: tuple[int, int] | None
) -> tuple[Difference, ...]:
    corrected = holm([1.0 if ratio is None else ratio.p_value() for *_, ratio in rows])
    # The interval shown is Bonferroni's over the same family: wider than Holm's steps, and easy to state.
    confidence = 1 - (1 - CONFIDENCE) / max(1, len(rows))
    return tuple(
        _difference(level, metric, was, now, ratio, p, confidence, counts or (len(was), len(now)))
        for (level, metric, was, now, ratio), p in zip(rows, corrected, strict=True)
    )


def _difference(
    level: str,
    metric: Metric,
    was: list[float],
    now: list[float],
    ratio: LogRatio | None,
    p_value: float,
    confidence: float,
    counts: tuple[int, int],
) -> Difference:
    middle = math.exp(fmean(map(math.log, now)) - fmean(map(math.log, was)))
    low, high = ratio.interval(confidence) if ratio else (None, None)
    said = judgement(middle, ratio, p_value, higher_is_better=metric.higher_is_better)
    unsettled = ratio is not None and said is Judgement.UNCLEAR
    needed = _repeats_needed(ratio, min(counts), confidence) if ratio and unsettled else None
    return Difference(
        level=level,
        metric=metric.name,
        unit=metric.unit,
        higher_is_better=metric.higher_is_better,
        before=fmean(was),
        after=fmean(now),
        n_before=counts[0],
        n_after=counts[1],
        ratio=middle,
        low=low,
        high=high,
        confidence=confidence,
        judgement=said,
        repeats_needed=needed,
    )


def judgement(middle: float, ratio: LogRatio | None, p_value: float, *, higher_is_better: bool) -> Judgement:
    """What a ratio after/before supports; `p_value` is corrected for how many were asked.

    Equivalence comes first: a difference that is certain and too small to matter is none (Schuirmann 1987).
    """
    if ratio and _within(ratio.interval(2 * CONFIDENCE - 1)):
        return Judgement.EQUIVALENT
    if p_value < 1 - CONFIDENCE:
        return Judgement.IMPROVED if (middle > 1) == higher_is_better else Judgement.WORSE
    return Judgement.UNCLEAR


def _within(interval: tuple[float, float]) -> bool:
    """Two one-sided tests: the 90 % interval lies inside the margin."""
    return interval[0] > 1 - EQUIVALENT and interval[1] < 1 + EQUIVALENT


def _repeats_needed(ratio: LogRatio, repeats: int, confidence: float) -> int:
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
