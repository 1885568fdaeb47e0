"""B integrity alone, C integrity under load: the right words at the right place, guards whole, source unchanged."""

from uncork.gate.criteria import Pair, Run, Way, concluded
from uncork.gate.fabric import Direction, Ended, Engine, Move, Moved
from uncork.model.gate import Criterion, CriterionResult, Depth, Figure, Trouble

LOADED_BYTES = 2 << 20
SOAK_ROUNDS = 200


def wrong(run: Run, move: Move, moved: Moved) -> str:
    """What is wrong with a checked move; empty where nothing is."""
    what = f"{move.engine} {move.direction} of {move.size_bytes} B"
    if moved.wrong_words:
        words = f"{moved.wrong_words} of {move.size_bytes // 4} words wrong"
        return f"{what}: {words}, first at byte {moved.first_wrong_bytes}"
    if moved.guard_touched:
        return f"{what}: bytes outside the destination were written"
    if moved.source_changed:
        return f"{what}: the source was changed"
    return ""


def integrity(run: Run) -> CriterionResult:
    """Every ordered pair × engine × direction × size, alone; one wrong word is final."""
    run.phase = Criterion.INTEGRITY
    sizes = run.fabric.sizes if run.depth is not Depth.QUICK else run.fabric.sizes[:3]
    troubles = []
    bad: set[Pair] = set()
    asked = 0
    for pair in run.open_pairs():
        for way in ways(run):
            for size, offset in sizes:
                trouble = _ask(run, pair, way, size, offset)
                asked += 1
                if trouble:
                    troubles.append(trouble)
                    bad.add(pair)
                if trouble or pair in run.lost:
                    break  # larger sizes of this way would only say it again
            if pair in run.lost:
                break
    missing = run.not_asked()
    for pair in bad:
        run.lost.setdefault(pair, "delivers wrong data")
    if not asked:
        missing.append("no pair could be asked")
    bits = run.moved_bytes * 8
    run.figures.append(Figure("error rate bound", 3 / bits if bits else None, "per bit", (), "3/n at 95 %"))
    says = f"{asked} checked transfers, {run.moved_bytes / 1e9:.2f} GB, every word compared by its owner"
    return concluded(Criterion.INTEGRITY, says, troubles, missing)


def ways(run: Run) -> list[Way]:
    """Every engine in both directions."""
    return [(engine, direction) for engine in run.fabric.engines for direction in Direction]


def _ask(run: Run, pair: Pair, way: Way, size: int, offset: int) -> Trouble | None:
    engine, direction = way
    key = run.key(*pair, engine, direction, size, offset)
    move = Move(*pair, engine, direction, size, offset, key=key)
    (moved,) = run.move([move])
    if moved.ended is not Ended.OK:
        return None
    says = wrong(run, move, moved)
    return Trouble(says, *pair) if says else None


def shifts(run: Run) -> list[tuple[str, list[Pair]]]:
    """Cyclic shifts in topology order, then everything at once, of the pairs that are still asked.

    An odd shift always holds two GPUs of one switch that send to two roots, the pattern under which some
    switches collapse; pairwise exchanges (XOR, neighbours) never do.
    """
    count = len(run.fabric.devices)
    open_pairs = set(run.open_pairs())
    found = []
    for k in range(1, count):
        pairs = [(i, (i + k) % count) for i in range(count) if (i, (i + k) % count) in open_pairs]
        if pairs:
            found.append((f"shift {k}", pairs))
    everything = [pair for pair in run.fabric.pairs if pair in open_pairs and pair[0] != pair[1]]
    if count > 2 and everything:
        found.append(("all to all", everything))
    return found


def integrity_loaded(run: Run) -> CriterionResult:
    """Shifts and all pairs together, pushes and pulls, each source its own region, checked after every round."""
    run.phase = Criterion.INTEGRITY_LOADED
    missing = run.not_asked()
    size = min(LOADED_BYTES, max(size for size, _ in run.fabric.sizes))
    rounds = SOAK_ROUNDS if run.depth is Depth.SOAK else 1
    troubles: dict[tuple[Pair, str], Trouble] = {}
    transfers = 0
    for name, pairs in shifts(run):
        for direction in Direction:
            for engine in run.fabric.engines:
                for round_number in range(rounds):
                    transfers += len(pairs)
                    found = _round(run, name, pairs, engine, direction, size, round_number)
                    for trouble in found:
                        troubles.setdefault(((trouble.src, trouble.dst), direction), trouble)
                    if found:
                        break
    for src, dst in {pair for pair, _ in troubles}:
        run.lost.setdefault((src, dst), "delivers wrong data under load")
    if not transfers:
        missing.append("no pair could be asked")
    says = f"{transfers} checked transfers in {len(shifts(run))} patterns at once"
    return concluded(Criterion.INTEGRITY_LOADED, says, troubles.values(), missing)


def _round(
    run: Run, name: str, pairs: list[Pair], engine: Engine, direction: Direction, size: int, number: int
) -> list[Trouble]:
    moves = [
        Move(*pair, engine, direction, size, key=run.key(*pair, name, engine, direction, number))
        for pair in pairs
    ]
    found = []
    for move, moved in zip(moves, run.move(moves), strict=True):
        if moved.ended is Ended.OK and (says := wrong(run, move, moved)):
            found.append(Trouble(f"{name}: {says}", move.src, move.dst))
    return found
