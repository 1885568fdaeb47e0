"""The eleven criteria, a function each: a run → what this criterion says. None knows which fabric it asks."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

from uncork.gate import limits
from uncork.gate.estimate import Estimate
from uncork.gate.fabric import Direction, Ended, Engine, Fabric, Flagged, Move, Moved
from uncork.model.gate import (
    Baseline,
    Criterion,
    CriterionResult,
    Depth,
    Figure,
    Matrix,
    Pattern,
    Trouble,
    Verdict,
)
from uncork.model.unknown import Unknown

Pair = tuple[int, int]
Way = tuple[Engine, Direction]
MIB = 1 << 20
# Copies are repeated until a sample lasts this long, but a slow pair's single copy is not repeated.
SAMPLE_S = 0.010


class OutOfTime(Exception):
    """The hard cap of the run was reached."""


class Run:
    """One run of the gate: the fabric, what was measured so far, and which pairs can still be asked."""

    def __init__(
        self, fabric: Fabric, depth: Depth, baseline: Baseline | None, nonce: int, cap_s: float
    ) -> None:
        self.fabric, self.depth, self.baseline, self._nonce = fabric, depth, baseline, nonce
        self.started_s = fabric.now_s()
        self.end_s = self.started_s + cap_s
        self.lost: dict[Pair, str] = {}
        self.broken: list[Trouble] = []
        self.refused: dict[Pair, str] = {}
        self.flags: dict[Pair, Flagged | Unknown] = {}
        self.cells: dict[tuple[Way, Pair], Estimate] = {}
        self.slow: set[Pair] = set()
        self.disturbed: dict[tuple[Way, Pair], bool] = {}
        self.matrices: list[Matrix] = []
        self.patterns: list[Pattern] = []
        self.figures: list[Figure] = []
        self.warnings: list[str] = []
        self.access: dict[str, bool] = {}
        self.links: dict[str, str] = {}
        self.moved_bytes = 0
        self.phase = "start"

    @property
    def labels(self) -> tuple[str, ...]:
        """What rows and columns are called."""
        return tuple(device.label for device in self.fabric.devices)

    def pair(self, pair: Pair) -> str:
        """`gpu0→gpu3`."""
        return f"{self.labels[pair[0]]}→{self.labels[pair[1]]}"

    def open_pairs(self) -> list[Pair]:
        """The ordered pairs that are still asked: granted, intact and answering so far."""
        return [pair for pair in self.fabric.pairs if pair not in self.lost]

    def not_asked(self) -> list[str]:
        """A line for each pair that this criterion could not be asked of."""
        return [f"{self.pair(pair)}: {why}" for pair, why in sorted(self.lost.items())]

    def key(self, src: int, dst: int, *parts: object) -> int:
        """The pattern's name for one transfer: nonce, ends and phase, so that no other transfer's data passes."""
        text = f"{self._nonce}/{src}/{dst}/{self.phase}/{parts}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")

    def move(self, moves: Sequence[Move]) -> tuple[Moved, ...]:
        """Run moves at once under their deadline; hangs, failures and refusals end their pairs. Raises OutOfTime."""
        self.check_time()
        expected_s = sum(self._expected_s(move) for move in moves)
        deadline_s = max(self.fabric.deadline_floor_s, limits.DEADLINE_FACTOR * expected_s)
        done = self.fabric.move(moves, deadline_s=deadline_s)
        for move, one in zip(moves, done, strict=True):
            if one.ended is Ended.OK:
                self.moved_bytes += move.size_bytes * move.loops
            else:
                self.end((move.src, move.dst), one.ended, one.says, f"{move.engine} {move.direction}")
        return done

    def end(self, pair: Pair, ended: Ended, says: str, what: str) -> None:
        """Take a pair out of the run and remember why: refusals are access, the rest is liveness."""
        if ended is Ended.REFUSED:
            self.refused.setdefault(pair, says)
            self.lost.setdefault(pair, f"refused ({says})")
            return
        word = "did not end in time" if ended is Ended.HANG else "failed"
        self.broken.append(Trouble(f"{what} {word} during {self.phase}: {says}", *pair))
        self.lost.setdefault(pair, f"{word} during {self.phase}")

    def check_time(self) -> None:
        """Raises OutOfTime when the hard cap is reached."""
        if self.fabric.now_s() > self.end_s:
            raise OutOfTime

    def _expected_s(self, move: Move) -> float:
        # A staged pair or one on a single Gen1 lane is slow, not hung.
        floor = limits.floor(self.fabric.path(move.src, move.dst))
        gb_s = floor.fail_gb_s / 4 if floor else 1.0
        return move.size_bytes * move.loops / (gb_s * 1e9)

    def timed(self, way: Way, pair: Pair, *, loops: int) -> float | None:
        """GB/s of one timed move, None where it did not end well."""
        engine, direction = way
        size = self.fabric.bandwidth_bytes
        (one,) = self.move([Move(*pair, engine, direction, size, loops=loops)])
        key = (way, pair)
        self.disturbed[key] = self.disturbed.get(key, True) and one.disturbed
        return size * loops / one.seconds / 1e9 if one.ended is Ended.OK and one.seconds > 0 else None

    def loops(self, way: Way, pair: Pair) -> int:
        """How many copies make a sample of about 10 ms, after one probe copy."""
        gb_s = self.timed(way, pair, loops=1)
        if gb_s is None:
            return 1
        return max(1, min(64, round(SAMPLE_S * gb_s * 1e9 / self.fabric.bandwidth_bytes)))


def concluded(
    criterion: Criterion,
    says: str,
    troubles: Iterable[Trouble],
    not_run: Iterable[str],
) -> CriterionResult:
    """Fail on any blocking trouble, inconclusive when something was not asked, else pass."""
    found, missing = tuple(troubles), tuple(not_run)
    if any(trouble.blocking for trouble in found):
        verdict = Verdict.FAIL
    else:
        verdict = Verdict.INCONCLUSIVE if missing else Verdict.PASS
    return CriterionResult(criterion, verdict, says, found, missing)


def class_of(fabric: Fabric, pair: Pair) -> tuple[str, float | None]:
    """Pairs of one class should give equal figures: the same kind of path at the same line rate."""
    path = fabric.path(*pair)
    return path.kind, path.raw_gb_s


Check = Callable[[Run], CriterionResult]
