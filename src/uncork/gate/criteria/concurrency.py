"""G concurrency: every cyclic shift and everything at once; single pairs can be healthy while two flows lose 93 %."""

from collections import defaultdict

from uncork.gate import limits
from uncork.gate.criteria import SAMPLE_S, Pair, Run, concluded
from uncork.gate.criteria.integrity import shifts
from uncork.gate.estimate import Estimate, first_look, second_look
from uncork.gate.fabric import Direction, Ended, Engine, Move
from uncork.model.gate import Criterion, CriterionResult, Pattern, Trouble


def concurrency(run: Run) -> CriterionResult:
    """Aggregate of each pattern against the baseline, against what single pairs add up to, and writes against reads."""
    run.phase = Criterion.CONCURRENCY
    missing, troubles = run.not_asked(), []
    for name, pairs in shifts(run):
        if len(pairs) < 2:
            continue
        both: dict[Direction, float] = {}
        for direction in (Direction.PULL, Direction.PUSH):
            bound = bound_gb_s(run, pairs, direction)
            bars = _limits(run, name, pairs, direction, bound, both)
            final = _measure(run, pairs, direction, [limit for limit, _, blocking in bars if blocking])
            run.patterns.append(Pattern(name, direction, tuple(pairs), final.value, final.samples, bound))
            if final.value is None:
                missing.append(f"{name} {direction}: no sample ended well")
                continue
            both[direction] = final.value
            troubles += _judge(name, direction, final.value, bars, pairs)
    if not run.patterns:
        missing.append("no pattern of two transfers could be made")
    return concluded(Criterion.CONCURRENCY, f"{len(run.patterns)} patterns", troubles, missing)


def _measure(run: Run, pairs: list[Pair], direction: Direction, bars: list[float]) -> Estimate:
    size = run.fabric.bandwidth_bytes
    loops = 1

    def take() -> float | None:
        moves = [Move(*pair, Engine.COPY, direction, size, loops=loops) for pair in pairs]
        done = run.move(moves)
        if any(one.ended is not Ended.OK or one.seconds <= 0 for one in done):
            return None
        return size * loops * len(pairs) / max(one.seconds for one in done) / 1e9

    probe = take()
    if probe is None:
        return Estimate(None, ())
    loops = max(1, min(32, round(SAMPLE_S * probe * 1e9 / (size * len(pairs)))))
    return second_look(first_look(take), take, lambda value: all(value >= bar for bar in bars))


def bound_gb_s(run: Run, pairs: list[Pair], direction: Direction) -> float | None:
    """What the pattern could carry: single-pair figures, cut where flows share a component of known capacity.

    None where flows share a component whose capacity is not known (a socket link), or a pair was not measured.
    """
    flows: dict[str, list[float]] = defaultdict(list)
    rates = []
    for pair in pairs:
        cell = run.cells.get(((Engine.COPY, direction), pair))
        if cell is None or cell.value is None:
            return None
        rates.append(cell.value)
        for component in run.fabric.path(*pair).components:
            flows[component].append(cell.value)
    worst = 1.0
    for component, sharing in flows.items():
        if len(sharing) > 1:
            capacity = run.fabric.capacity_gb_s(component)
            if capacity is None:
                return None
            worst = min(worst, capacity / sum(sharing))
    return sum(rates) * worst


def _limits(
    run: Run,
    name: str,
    pairs: list[Pair],
    direction: Direction,
    bound: float | None,
    both: dict[Direction, float],
) -> list[tuple[float, str, bool]]:
    bars: list[tuple[float, str, bool]] = []
    then = next(
        (
            one
            for one in (run.baseline.patterns if run.baseline else ())
            if (one.name, one.direction, one.pairs) == (name, str(direction), tuple(pairs))
        ),
        None,
    )
    if then is not None and then.gb_s is not None:
        # A pair that became slower on its own is criterion F's finding; here it lowers what is expected.
        explained = min(1.0, bound / then.bound_gb_s) if bound and then.bound_gb_s else 1.0
        expected = then.gb_s * explained
        for part, blocking in (
            (limits.PATTERN_OF_BASELINE_FAIL, True),
            (limits.PATTERN_OF_BASELINE_WARN, False),
        ):
            bars.append((part * expected, f"{part} of the baseline's {then.gb_s:.0f} GB/s", blocking))
    else:
        if bound is not None:
            part = limits.PATTERN_OF_BOUND_FAIL
            bars.append((part * bound, f"{part} of the {bound:.0f} GB/s that its pairs carry alone", True))
        if direction is Direction.PUSH and (read := both.get(Direction.PULL)):
            part = limits.WRITE_OF_READ_FAIL
            bars.append((part * read, f"{part} of the {read:.0f} GB/s that the same pattern reads", True))
    return bars


def _judge(
    name: str, direction: Direction, value: float, bars: list[tuple[float, str, bool]], pairs: list[Pair]
) -> list[Trouble]:
    broken = [bar for bar in bars if value < bar[0]]
    if not broken:
        return []
    limit, source, blocking = max(broken, key=lambda bar: (bar[2], bar[0]))
    says = f"{name} {direction}: {value:.0f} GB/s together ({len(pairs)} transfers)"
    return [Trouble(says, blocking=blocking, measured=value, limit=limit, unit="GB/s", source=source)]
