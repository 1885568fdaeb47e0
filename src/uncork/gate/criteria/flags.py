"""D ordering, E direct path, H latency: three questions to one flag ping-pong between kernels of two devices."""

import statistics
from collections import defaultdict

from uncork.gate import limits
from uncork.gate.criteria import Pair, Run, class_of, concluded
from uncork.gate.criteria.bandwidth import baseline_cells, look
from uncork.gate.estimate import second_best
from uncork.gate.fabric import Direction, Ended, Engine, Flagged
from uncork.model.gate import Cell, Criterion, CriterionResult, Depth, Figure, Matrix, Trouble, Verdict
from uncork.model.unknown import is_unknown

ORDERING_ROUNDS = 100_000
QUICK_ROUNDS = 2_000
SOAK_FACTOR = 10
FLAG_MATRIX = "flag latency, one way"
ALL_REDUCE_BYTES = (8, 64, 512, 4096, 16384, 65536)
ALL_REDUCE_ROUNDS = 200


def ping_pong(run: Run, pair: Pair) -> Flagged | None:
    """The ping-pong of a pair, asked once a run; None where it cannot be had (the reason is in `run.lost`)."""
    key = (min(pair), max(pair))
    if key not in run.flags:
        run.check_time()
        rounds = QUICK_ROUNDS if run.depth is Depth.QUICK else ORDERING_ROUNDS
        rounds *= SOAK_FACTOR if run.depth is Depth.SOAK else 1
        # A staged path needs 10-25 us one way (published); it must be measured, not called hung.
        deadline_s = max(run.fabric.deadline_floor_s, rounds * 2 * 25e-6)
        run.flags[key] = run.fabric.flag(*key, rounds=rounds, deadline_s=deadline_s)
        answer = run.flags[key]
        if not is_unknown(answer) and answer.ended is not Ended.OK:
            run.end(key, answer.ended, answer.says, "flag ping-pong")
            run.end((key[1], key[0]), answer.ended, answer.says, "flag ping-pong")
    answer = run.flags[key]
    return None if is_unknown(answer) or answer.ended is not Ended.OK else answer


def _asked(run: Run, missing: list[str]) -> dict[Pair, Flagged]:
    found = {}
    for pair in run.open_pairs():
        answer = ping_pong(run, pair)
        if answer is not None:
            found[pair] = answer
        elif is_unknown(reason := run.flags[min(pair), max(pair)]):
            line = f"{run.pair(pair)}: {reason.reason}"
            if not reason.absent:
                missing.append(line)
            elif line not in run.warnings:
                run.warnings.append(line)  # the question does not arise for this pair
    return found


def _no_flags(run: Run, criterion: Criterion) -> CriterionResult:
    """No pair could be asked: no pass, unless the question arose for none of them."""
    asked = [answer for answer in run.flags.values() if is_unknown(answer)]
    says = asked[0].reason if asked else "not run"
    missing = () if asked else ("no pair could be asked",)
    return CriterionResult(criterion, Verdict.INCONCLUSIVE, says, (), missing, applies=not asked)


def ordering(run: Run) -> CriterionResult:
    """Payload, then flag: whoever sees the flag must see the payload."""
    run.phase = Criterion.ORDERING
    missing = run.not_asked()
    found = _asked(run, missing)
    troubles = [
        Trouble(f"{one.stale} of {one.rounds} rounds read data older than its flag", *pair)
        for pair, one in found.items()
        if one.stale
    ]
    for trouble in troubles:
        run.lost.setdefault((trouble.src, trouble.dst), "shows flags before data")
    rounds = min((one.rounds for one in found.values()), default=0)
    if not found and not missing:
        return _no_flags(run, Criterion.ORDERING)
    bound = f", so fewer than {3 / rounds:.0e} a round at 95 %" if rounds and not troubles else ""
    return concluded(Criterion.ORDERING, f"{rounds} rounds a pair{bound}", troubles, missing)


def direct(run: Run) -> CriterionResult:
    """A flag needs a microsecond over a switch and ten through the host; kernels must reach half of the copy engine."""
    run.phase = Criterion.DIRECT
    missing = run.not_asked()
    found = _asked(run, missing)
    classes: dict[object, list[float]] = defaultdict(list)
    for pair, one in found.items():
        classes[class_of(run.fabric, pair)].append(one.one_way_ns)
    troubles = []
    for pair, one in found.items():
        middle = statistics.median(classes[class_of(run.fabric, pair)])
        troubles += _staged(pair, one.one_way_ns, middle)
    troubles += _kernel_path(run)
    if not found and not missing:
        missing.append("no pair could be asked")
    says = f"{len(found)} pairs by flag latency and by kernel against copy engine"
    return concluded(Criterion.DIRECT, says, troubles, missing)


def _staged(pair: Pair, ns: float, middle: float) -> list[Trouble]:
    says = f"a flag takes {ns / 1000:.2f} us one way"
    if ns > limits.FLAG_STAGED_NS:
        source = "direct paths take 0.6-1.4 us, staged ones 10-25 us (published)"
        return [
            Trouble(f"{says}: staged through the host", *pair, True, ns, limits.FLAG_STAGED_NS, "ns", source)
        ]
    if ns > limits.FLAG_CLASS_FACTOR * middle:
        limit = limits.FLAG_CLASS_FACTOR * middle
        return [Trouble(says, *pair, True, ns, limit, "ns", f"3 × the {middle:.0f} ns of its class")]
    if ns > limits.FLAG_WARN_NS:
        return [
            Trouble(
                says, *pair, False, ns, limits.FLAG_WARN_NS, "ns", "no direct path was published above 4 us"
            )
        ]
    return []


def _kernel_path(run: Run) -> list[Trouble]:
    if Engine.KERNEL not in run.fabric.engines:
        return []
    troubles = []
    copies, kernels = (look(run, (engine, Direction.PULL)) for engine in (Engine.COPY, Engine.KERNEL))
    for pair, kernel in kernels.items():
        copy = copies.get(pair)
        if kernel.value is None or copy is None or not copy.value:
            continue
        ratio = kernel.value / copy.value
        if ratio < limits.KERNEL_OF_COPY_WARN:
            says = f"kernel loads reach {kernel.value:.1f} GB/s, the copy engine {copy.value:.1f} GB/s"
            blocking = ratio < limits.KERNEL_OF_COPY_FAIL
            source = "healthy pairs have 0.86-0.95; a staged kernel path 0.07 (published)"
            troubles.append(
                Trouble(says, *pair, blocking, ratio, limits.KERNEL_OF_COPY_FAIL, "ratio", source)
            )
    return troubles


def latency(run: Run) -> CriterionResult:
    """Flag and all-reduce latency against the baseline; a first run only records them."""
    run.phase = Criterion.LATENCY
    missing = run.not_asked()
    found = _asked(run, missing)
    if not found and not missing:
        return _no_flags(run, Criterion.LATENCY)
    troubles = _flag_latency(run, found) + _all_reduce(run, missing)
    says = (
        "compared with the baseline"
        if run.baseline
        else "recorded; a first run has nothing to compare it with"
    )
    return concluded(Criterion.LATENCY, says, troubles, missing)


def _flag_latency(run: Run, found: dict[Pair, Flagged]) -> list[Trouble]:
    then = baseline_cells(run, FLAG_MATRIX)
    cells, troubles = [], []
    for pair, one in found.items():
        limit = then[pair] * limits.LATENCY_FACTOR_FAIL + limits.FLAG_SLACK_NS if pair in then else None
        ns, samples = _again(run, pair, one.one_way_ns, limit)
        cells.append(Cell(*pair, ns, samples, limit, len(samples) > 1 and limit is not None and ns <= limit))
        if limit is not None and ns > limit:
            source = f"1.15 × the baseline's {then[pair]:.0f} ns + 200 ns"
            troubles.append(
                Trouble(f"a flag takes {ns:.0f} ns one way", *pair, True, ns, limit, "ns", source)
            )
    run.matrices.append(Matrix(FLAG_MATRIX, "ns", run.labels, tuple(cells), higher_is_better=False))
    return [
        trouble
        for trouble in troubles
        if not run.fabric.path(trouble.src, trouble.dst).kind.startswith("numa")
    ] + [
        # Host flags ride on the scheduler: a slower one is worth a line, not a verdict.
        Trouble(t.says, t.src, t.dst, False, t.measured, t.limit, t.unit, t.source)
        for t in troubles
        if run.fabric.path(t.src, t.dst).kind.startswith("numa")
    ]


def _again(run: Run, pair: Pair, ns: float, limit: float | None) -> tuple[float, tuple[float, ...]]:
    if limit is None or ns <= limit:
        return ns, (ns,)
    samples = []
    for _ in range(5):
        answer = run.fabric.flag(*pair, rounds=QUICK_ROUNDS, deadline_s=max(1.0, run.fabric.deadline_floor_s))
        if not is_unknown(answer) and answer.ended is Ended.OK:
            samples.append(answer.one_way_ns)
    value = second_best(samples, higher_is_better=False)
    return (ns, (ns,)) if value is None else (value, (ns, *samples))


def _all_reduce(run: Run, missing: list[str]) -> list[Trouble]:
    if Engine.KERNEL not in run.fabric.engines:
        return []  # host memory: no GPU, no collective library
    answer = run.fabric.all_reduce(ALL_REDUCE_BYTES, rounds=ALL_REDUCE_ROUNDS)
    if is_unknown(answer):
        if answer.absent:
            run.warnings.append(f"all-reduce latency was not measured: {answer.reason}")
        else:
            missing.append(f"all-reduce latency: {answer.reason}")
        return []
    if answer.hung:
        run.broken.append(Trouble(answer.hung, source="NCCL_DEBUG=INFO shows where it waits"))
    then = {figure.name: figure.value for figure in run.baseline.figures} if run.baseline else {}
    troubles = []
    for size, samples in answer.samples_us.items():
        name, now = f"all-reduce {size} B", statistics.median(samples)
        run.figures.append(Figure(name, now, "us", samples, answer.library))
        before = then.get(name)
        if before is not None and now > (
            limit := before * limits.LATENCY_FACTOR_FAIL + limits.ALL_REDUCE_SLACK_US
        ):
            says = f"{name} takes {now:.1f} us"
            source = f"1.15 × the baseline's {before:.1f} us + 1 us"
            troubles.append(Trouble(says, blocking=True, measured=now, limit=limit, unit="us", source=source))
    for channel, transport in sorted(answer.transports.items()):
        if transport in ("SHM", "NET"):
            src, _, dst = channel.partition("→")
            pair = (int(src), int(dst)) if src.isdigit() and dst.isdigit() else (-1, -1)
            says = f"{answer.library} goes through {transport}, although the pair passed on its own"
            troubles.append(
                Trouble(says, *pair, source="NCCL_P2P_LEVEL, NCCL_P2P_DISABLE and the server's own log")
            )
    return troubles
