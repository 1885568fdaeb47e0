"""What two benchmark runs say about a change."""

from enum import StrEnum

import msgspec


class Judgement(StrEnum):
    """What the difference between two runs supports, and no more."""

    IMPROVED = "improved"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    UNCLEAR = "no difference shown"
    NOT_COMPARABLE = "not comparable"


class Difference(msgspec.Struct, frozen=True):
    """One metric at one level (or over all levels, `level` empty), after against before.

    `ratio` is after/before with its interval `low`..`high`, both None where one repeat gives no interval; it covers
    `confidence` after correction for how many were asked. `repeats_needed` is how many repeats a run would have
    settled it (None: settled).
    """

    level: str
    metric: str
    unit: str
    higher_is_better: bool
    before: float
    after: float
    n_before: int
    n_after: int
    ratio: float
    low: float | None
    high: float | None
    confidence: float
    judgement: Judgement
    repeats_needed: int | None = None


class Comparison(msgspec.Struct, frozen=True):
    """Two runs compared: one verdict, what it rests on, and why not, where they cannot be compared."""

    schema: int
    judgement: Judgement
    says: str
    before: str  # run ids
    after: str
    overall: tuple[Difference, ...]
    levels: tuple[Difference, ...]
    differs: tuple[str, ...]  # what differs and was not under test
    tested: tuple[str, ...]  # what differs and was
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # what neither run could read: nobody knows whether it is equal
