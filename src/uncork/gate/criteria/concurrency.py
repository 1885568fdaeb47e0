"""G concurrency: every cyclic shift and everything at once; single pairs can be healthy while two flows lose 93 %."""

from collections import defaultdict

import msgspec

from uncork.gate import limits
from uncork.gate.criteria import SAMPLE_S, Pair, Run, concluded
from uncork.gate.criteria.integrity import shifts
from uncork.gate.estimate import Estimate, first_look, second_look
from uncork.gate.fabric import Direction, Ended, Engine, Move
from uncork.model.gate import Criterion, CriterionResult, Pattern, Trouble


class _Bar(msgspec.Struct, frozen=True):
    gb_s: float
    says: str
    blocking: bool


class _Measured(msgspec.Struct):
    """The aggregate of a pattern, and the rate of each flow in its last sample."""

    total: Estimate
    flows: dict[Pair, float]


def concurrency(run: Run) -> CriterionResult:
    """Aggregate of each pattern against the baseline, what its pairs carry alone, and writes against reads."""
    run.phase = Criterion.CONCURRENCY
    missing, troubles = run.not_asked(), []
    for name, pairs in shifts(run):
        if len(pairs) < 2:
            continue
        read: dict[Pair, float] = {}
        for direction in (Direction.PULL, Direction.PUSH):
            alone = shares_gb_s(run, pairs, direction)
            bars = _limits(run, name, pairs, direction, alone)
            found = _measure(run, pairs, direction, bars)
            value, bound = found.total.value, sum(alone.values()) if alone else None
            rates = tuple(found.flows.get(pair, 0.0) for pair in pairs)
            run.patterns.append(
                Pattern(name, direction, tuple(pairs), value, found.total.samples, bound, rates)
            )
            if value is None:
                missing.append(f"{name} {direction}: no sample ended well")
                continue
            usual = _usual(_before(run, name, pairs, direction), alone, found.flows)
            troubles += _judge(name, direction, value, bars, found.flows, usual)
            if direction is Direction.PULL:
                read = found.flows
            elif not any(bar.blocking and value < bar.gb_s for bar in bars):
                troubles += _collapsed(run, name, found.flows, read)
    if not run.patterns:
        missing.append("no pattern of two transfers could be made")
    return concluded(Criterion.CONCURRENCY, f"{len(run.patterns)} patterns", troubles, missing)


def _measure(run: Run, pairs: list[Pair], direction: Direction, bars: list[_Bar]) -> _Measured:
    size = run.fabric.bandwidth_bytes
    found = _Measured(Estimate(None, ()), {})
    loops = 1

    def take() -> float | None:
        moves = [Move(*pair, Engine.COPY, direction, size, loops=loops) for pair in pairs]
        done = run.move(moves)
        if any(one.ended is not Ended.OK or one.seconds <= 0 for one in done):
            return None
        found.flows = {pair: size * loops / one.seconds / 1e9 for pair, one in zip(pairs, done, strict=True)}
        return sum(found.flows.values())

    probe = take()
    if probe is not None:
        loops = max(1, min(32, round(SAMPLE_S * probe * 1e9 / (size * len(pairs)))))
        found.total = second_look(
            first_look(take), take, lambda value: all(value >= bar.gb_s for bar in bars if bar.blocking)
        )
    return found


def shares_gb_s(run: Run, pairs: list[Pair], direction: Direction) -> dict[Pair, float] | None:
    """What each flow of a pattern could get: its figure alone, cut where flows share a component of known capacity.

    None where flows share a component whose capacity is not known (a socket link), or a pair was not measured.
    """
    alone: dict[Pair, float] = {}
    sharing: dict[str, float] = defaultdict(float)
    users: dict[str, int] = defaultdict(int)
    for pair in pairs:
        cell = run.cells.get(((Engine.COPY, direction), pair))
        if cell is None or cell.value is None:
            return None
        alone[pair] = cell.value
        for component in run.fabric.path(*pair).components:
            sharing[component] += cell.value
            users[component] += 1
    part = dict.fromkeys(sharing, 1.0)
    for component, together in sharing.items():
        if users[component] > 1:
            capacity = run.fabric.capacity_gb_s(component)
            if capacity is None:
                return None
            part[component] = min(1.0, capacity / together)
    return {
        pair: value * min((part[name] for name in run.fabric.path(*pair).components), default=1.0)
        for pair, value in alone.items()
    }


def _before(run: Run, name: str, pairs: list[Pair], direction: Direction) -> Pattern | None:
    """The same pattern in the baseline."""
    patterns = run.baseline.patterns if run.baseline else ()
    wanted = (name, str(direction), tuple(pairs))
    return next((one for one in patterns if (one.name, one.direction, one.pairs) == wanted), None)


def _usual(
    then: Pattern | None, alone: dict[Pair, float] | None, flows: dict[Pair, float]
) -> dict[Pair, float]:
    """What each flow should reach: as in the baseline, else its share, else as the flow in the middle."""
    if then is not None and then.flows_gb_s:
        return dict(zip(then.pairs, then.flows_gb_s, strict=True))
    middle = sorted(flows.values())[len(flows) // 2]
    return alone or dict.fromkeys(flows, middle)


def _limits(
    run: Run,
    name: str,
    pairs: list[Pair],
    direction: Direction,
    alone: dict[Pair, float] | None,
) -> list[_Bar]:
    then = _before(run, name, pairs, direction)
    # A pair that is too slow on its own is criterion F's finding; patterns with it are judged as on a first run.
    if then is not None and then.gb_s is not None and not run.slow.intersection(pairs):
        parts = ((limits.PATTERN_OF_BASELINE_FAIL, True), (limits.PATTERN_OF_BASELINE_WARN, False))
        says = f"of the baseline's {then.gb_s:.0f} GB/s"
        return [_Bar(part * then.gb_s, f"{part} {says}", blocking) for part, blocking in parts]
    if alone is None:
        return []
    part, bound = limits.PATTERN_OF_BOUND_FAIL, sum(alone.values())
    return [_Bar(part * bound, f"{part} of the {bound:.0f} GB/s that its pairs carry alone", True)]


def _collapsed(run: Run, name: str, written: dict[Pair, float], read: dict[Pair, float]) -> list[Trouble]:
    """Flows that write far less than they read in the same pattern, unless the baseline shows it."""
    if run.baseline is not None and any(one.name == name for one in run.baseline.patterns):
        return []
    part = limits.WRITE_OF_READ_FAIL
    return [
        Trouble(
            f"{name} push: {rate:.1f} GB/s in company, the same flow reads {read[pair]:.1f} GB/s",
            *pair,
            measured=rate,
            limit=part * read[pair],
            unit="GB/s",
            source=f"{part} of what the same pattern reads",
        )
        for pair, rate in written.items()
        if pair in read and rate < part * read[pair]
    ]


def _judge(
    name: str,
    direction: Direction,
    value: float,
    bars: list[_Bar],
    flows: dict[Pair, float],
    usual: dict[Pair, float],
) -> list[Trouble]:
    broken = [bar for bar in bars if value < bar.gb_s]
    if not broken:
        return []
    worst = max(broken, key=lambda bar: (bar.blocking, bar.gb_s))
    says = f"{name} {direction}: {value:.0f} GB/s together ({len(flows)} transfers)"
    found = [
        Trouble(
            says, blocking=worst.blocking, measured=value, limit=worst.gb_s, unit="GB/s", source=worst.says
        )
    ]
    for pair, rate in flows.items():
        expected = usual[pair]
        if rate < limits.PATTERN_OF_BOUND_FAIL * expected:
            says = f"{name} {direction}: {rate:.1f} GB/s in company, {expected:.1f} expected"
            found.append(Trouble(says, *pair, worst.blocking, rate, expected / 2, "GB/s", worst.says))
    return found
