"""Measured speed as a share of each tier."""

import msgspec

from uncork.errors import BadInput
from uncork.model.bound import Bound


class Efficiency(msgspec.Struct, frozen=True):
    """Measured / tier. The first of each pair is against what cannot be beaten, the second against uniform routing."""

    silicon: tuple[float, float]
    fabric: tuple[float, float]
    engine: tuple[float, float]
    beaten: tuple[str, ...]  # tiers that the measurement exceeds; "silicon" means the bound's input is wrong


def of(tok_s: float, bound: Bound) -> Efficiency:
    """The efficiency of `tok_s` output tokens a second over all users at `bound.concurrency`.

    Raises BadInput where the measurement is not a positive number.
    """
    if not tok_s > 0:
        raise BadInput(f"measured {tok_s:g} tok/s is not a speed")
    tiers = {"silicon": bound.silicon, "fabric": bound.fabric, "engine": bound.engine}
    shares = {name: (tok_s / tier.tok_s, tok_s / tier.tok_s_uniform) for name, tier in tiers.items()}
    beaten = tuple(name for name, share in shares.items() if share[0] > 1)
    return Efficiency(shares["silicon"], shares["fabric"], shares["engine"], beaten)


def typical(bound: Bound, family: str) -> str:
    """Where public measurements at few users stand against the fabric tier, to read an efficiency by.

    Percentiles over 2,766 InferenceX rows, 1k in and 1k out (docs/bound.md).
    """
    if bound.parallel.tp == 1 and family == "dense":
        return (
            "public runs on one device at few users: half above 58 % of the fabric tier, a tenth above 71 %"
        )
    if family == "dense":
        return "public TP8 runs at few users: half above 31 % of the fabric tier, a tenth above 37 %"
    return "public MoE runs at few users: half above 23-29 % of the fabric tier; below 12 % is a defect"
