"""Where the time of a token went, in bars that sum to the measured value exactly.

Each bar is the growth of the time when one more thing is admitted, in this order: the bytes spread evenly,
experts beyond the fewest, replication, KV cache, compute that memory cannot hide, bandwidth below its peak,
the collectives' floor, the collectives as measured, the kernel floor, drafting. What is left is unexplained.
"""

import msgspec

from uncork.bound.advice import ADVICE
from uncork.errors import BadInput
from uncork.model.bound import Bar, Bound, Step, Waterfall

UNEXPLAINED = "unexplained"


class Moved(msgspec.Struct, frozen=True):
    """One bar before and after, in ms per token; negative `delta_ms` is time gained."""

    part: str
    before_ms: float
    after_ms: float
    delta_ms: float


def of(bound: Bound, tok_s: float) -> Waterfall:
    """The waterfall of `tok_s` output tokens a second over all users, per token of one user.

    The unexplained bar is negative where a term is taken too high for this host (a foreign all-reduce table,
    kernels faster than the best known): then that term must be measured here. Raises BadInput on a speed <= 0.
    """
    if not tok_s > 0:
        raise BadInput(f"measured {tok_s:g} tok/s is not a speed")
    measured_ns = round(bound.batch / tok_s * 1e9)
    terms = {
        part: round(ms * 1e6 / bound.tokens_per_step)
        for part, ms in _terms(bound.best, bound.uniform).items()
    }
    terms[UNEXPLAINED] = measured_ns - sum(terms.values())
    bars = tuple(
        Bar(part, ns, ns / 1e6, *ADVICE[part]) for part, ns in terms.items() if ns or part in _ALWAYS
    )
    return Waterfall(measured_ns, measured_ns / 1e6, bars)


_ALWAYS = (
    "ideal sharding",
    "replication",
    "kv cache",
    "achieved bandwidth",
    "all-reduce floor",
    "all-reduce excess",
    "kernel floor",
    UNEXPLAINED,
)


def _terms(best: Step, uniform: Step) -> dict[str, float]:
    memory = uniform.ideal_ms + uniform.replication_ms + uniform.kv_ms
    worked = max(memory, uniform.compute_ms)
    return {
        "ideal sharding": best.ideal_ms,
        "expert spread": uniform.ideal_ms - best.ideal_ms,
        "replication": uniform.replication_ms,
        "kv cache": uniform.kv_ms,
        "compute": worked - memory,
        "achieved bandwidth": max(memory + uniform.bandwidth_loss_ms, uniform.compute_ms) - worked,
        "all-reduce floor": uniform.collective_floor_ms,
        "all-reduce excess": uniform.collective_ms - uniform.collective_floor_ms,
        "kernel floor": uniform.kernel_floor_ms,
        "drafting": uniform.draft_ms,
    }


def moved(before: Waterfall, after: Waterfall) -> tuple[Moved, ...]:
    """Every bar that differs between two waterfalls, the largest change first."""
    first = {bar.part: bar.ns for bar in before.bars}
    second = {bar.part: bar.ns for bar in after.bars}
    parts = list(dict.fromkeys([*first, *second]))
    pairs = [(part, first.get(part, 0), second.get(part, 0)) for part in parts]
    changes = [Moved(part, a / 1e6, b / 1e6, (b - a) / 1e6) for part, a, b in pairs if a != b]
    return tuple(sorted(changes, key=lambda change: -abs(change.delta_ms)))
