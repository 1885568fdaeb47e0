"""Many equal changes on one line, as people count them; the whole list is in the plan's JSON."""

from collections.abc import Iterable
from itertools import groupby

from uncork.model.plan import PlannedChange

SHOWN = 3


def fold(changes: Iterable[PlannedChange]) -> list[str]:
    """Lines `target: before -> want`; more than three neighbours that change alike become one line."""
    lines = []
    for (_, before, want, owners), group in groupby(changes, key=_alike):
        targets = [change.target for change in group]
        also = f"  (also set by {', '.join(owners)})" if owners else ""
        if len(targets) > SHOWN:
            targets = [f"{targets[0]} ... {targets[-1]} ({len(targets)} targets)"]
        lines += [f"{target}: {before} -> {want}{also}" for target in targets]
    return lines


def _alike(change: PlannedChange) -> tuple[str, str, str, tuple[str, ...]]:
    return change.knob, "?" if change.before is None else change.before, change.want, change.owners
