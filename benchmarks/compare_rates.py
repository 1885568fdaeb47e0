"""How often `uncork compare` is wrong: SIMULATED runs with known noise, judged by the real code.

    .venv/bin/python benchmarks/compare_rates.py [TRIALS]

Two levels, both runs of the same spec; every repeat's three figures vary by the noise (their standard deviation).
*walk* is an AR(1) walk over the levels in the order in which they ran (correlation 0.95 from one to the next, the noise
its standard deviation) that goes on from the run before to the run after: what a busy or warming host does. *in turns*
is the same walk, with before and after measured by turns (ABBA, one repeat a turn). *bursts, in turns* is independent
noise, and a neighbour that slows a fifth of the levels by a tenth to a third. *A/A* is how often two runs of the
same server are called improved or worse; the others how often a server slower by that much is called worse.
"""

import math
import random
import sys

from uncork.bench.compare import compare
from uncork.bench.merge import merged
from uncork.model.bench import METRICS, SCHEMA, BenchRun, ClientCheck, Distribution, LevelResult
from uncork.model.comparison import Judgement

LEVELS = {"c1": 100.0, "c8": 400.0}
CORRELATION = 0.95
KINDS = (
    ("independent", {}),
    ("walk", {"correlation": CORRELATION}),
    ("walk, in turns", {"correlation": CORRELATION, "in_turns": True}),
    ("bursts, in turns", {"bursts": True, "in_turns": True}),
)
CALLED = (Judgement.IMPROVED, Judgement.WORSE)


class Weather:
    """The noise of one figure after the other: independent, or a walk (AR(1)) or bursts shared by all metrics."""

    def __init__(
        self, dice: random.Random, noise: float, correlation: float = 0.0, bursts: bool = False
    ) -> None:
        self._dice, self._noise, self._correlation, self._bursts = dice, noise, correlation, bursts
        self._now = dice.gauss(0, noise)
        self.independent = correlation == 0 and not bursts

    def next(self) -> float:
        """ln of the next level's speed over the true one."""
        fresh = self._dice.gauss(0, self._noise)
        self._now = self._correlation * self._now + math.sqrt(1 - self._correlation**2) * fresh
        burst = self._bursts and self._dice.random() < 0.2
        return self._now - (self._dice.uniform(0.1, 0.33) if burst else 0.0)


def simulated(
    weather: Weather, repeats: int, *, slower: float = 0.0, at: int = 0, run_id: str = "simulated"
) -> BenchRun:
    """A run of `repeats` of each level, the levels in turn, a minute each."""
    levels = []
    for repeat in range(repeats):
        for name, speed in LEVELS.items():
            true = speed / (1 + slower)
            speeds = [true * math.exp(weather.next()) for _ in range(3 if weather.independent else 1)]
            levels.append(_level(name, repeat, speeds, at + len(levels)))
    return BenchRun(
        schema=SCHEMA, metrics=METRICS, version="simulated", run_id=run_id, started_unix_s=60.0 * at,
        started_monotonic_ns=0, spec={}, workload_hash="", model="", endpoints=(), warmup={}, finished=True,
        levels=tuple(levels),
    )  # fmt: skip


def pair(weather: Weather, repeats: int, slower: float, *, in_turns: bool) -> tuple[BenchRun, BenchRun]:
    """Before and after: one after the other, or `repeats` times by turns (ABBA)."""
    if not in_turns:
        before = simulated(weather, repeats)
        return before, simulated(weather, repeats, slower=slower, at=len(before.levels))
    sides: tuple[list[BenchRun], list[BenchRun]] = ([], [])
    for turn in range(2 * repeats):
        side = (turn + 1) // 2 % 2
        sides[side].append(
            simulated(weather, 1, slower=side * slower, at=turn * len(LEVELS), run_id=str(turn))
        )
    return merged(sides[0]), merged(sides[1])


def rates(
    trials: int,
    repeats: int,
    noise: float,
    *,
    slower: float = 0.0,
    correlation: float = 0.0,
    bursts: bool = False,
    in_turns: bool = False,
    seed: int = 1,
) -> tuple[float, float]:
    """The shares called improved or worse, and called worse."""
    dice = random.Random(f"{seed}/{repeats}/{noise}/{slower}/{correlation}")
    called = worse = 0
    for _ in range(trials):
        weather = Weather(dice, noise, correlation, bursts)
        said = compare(*pair(weather, repeats, slower, in_turns=in_turns)).judgement
        called += said in CALLED
        worse += said is Judgement.WORSE
    return called / trials, worse / trials


def main(trials: int) -> None:
    """Print the table."""
    print(f"SIMULATED, {trials} comparisons a cell (±{1.96 * math.sqrt(0.05 * 0.95 / trials):.1%} at 5 %)\n")
    head = ("noise", "weather", "repeats", "A/A called", "5 % found", "10 % found", "20 % found")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for noise in (0.01, 0.03, 0.06):
        for kind, more in KINDS:
            for repeats in (3, 5, 10):
                cells = [f"{rates(trials, repeats, noise, **more)[0]:.1%}"]
                for slower in (0.05, 0.10, 0.20):
                    cells.append(f"{rates(trials, repeats, noise, slower=slower, **more)[1]:.0%}")
                print(f"| {noise:.0%} | {kind} | {repeats} | " + " | ".join(cells) + " |", flush=True)


def _level(name: str, repeat: int, speeds: list[float], order: int) -> LevelResult:
    tok_s, ttft, tpot = speeds[0], speeds[-1], speeds[len(speeds) // 2]
    check = ClientCheck(
        stamp_source="kernel", processes=1, cpu_s=0.0, cpu_us_per_token=None, cpu_share=0.0, lag_p50_ms=None,
        lag_p99_ms=None, lag_max_ms=None, turn_p99_ms=0.0, turn_max_ms=0.0, merged_share=0.0,
        merged_late_share=0.0, dispatch_late_p99_ms=None, peak_memory_mb=0.0,
    )  # fmt: skip
    return LevelResult(
        level=name, repeat=repeat, order=order, phase="mixed", arrival="closed", concurrency=int(name[1:]),
        rate_s=None, seed=0, input_len=0, output_len=0, started_unix_s=60.0 * order, wall_s=60.0, requests=1,
        completed=1, failed={}, flags={}, input_tokens=0, cached_tokens=None, output_tokens=0, token_source="",
        tokens_per_chunk=None, output_tok_s=tok_s, total_tok_s=tok_s, request_s=1.0, steady_output_tok_s=None,
        achieved_concurrency=1.0, per_user_tok_s=None, ttft_ms=_flat(1e4 / ttft), ttft_intended_ms=None,
        first_answer_ms=None, chunk_interval_ms=None, itl_ms=None, tpot_ms=_flat(1e3 / tpot), e2e_ms=None,
        e2e_intended_ms=None, normalised_ms=None, goodput_s=None, attainment=None, client=check, valid=True,
    )  # fmt: skip


def _flat(value: float) -> Distribution:
    return Distribution(1, value, 0.0, value, value, value, value, value, value, value)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400)
