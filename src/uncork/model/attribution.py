"""What each group of changes was worth."""

import msgspec

from uncork.model.comparison import Judgement


class Worth(msgspec.Struct, frozen=True):
    """One metric of one group: the value with all changes set over the value with this group put back.

    `ratio` is set/put back, with its interval `low`..`high` over `blocks` (None: fewer than two blocks), which
    covers `confidence` after correction for how many were asked.
    """

    group: str  # the apply step's name
    title: str
    metric: str
    unit: str
    higher_is_better: bool
    blocks: int
    ratio: float
    low: float | None
    high: float | None
    confidence: float
    judgement: Judgement


class Attribution(msgspec.Struct, frozen=True):
    """What every group was worth, and what was left out and why."""

    schema: int
    says: str
    worth: tuple[Worth, ...]
    notes: tuple[str, ...] = ()
