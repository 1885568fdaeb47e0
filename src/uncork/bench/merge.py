"""Several runs of one setting as one, for a comparison in turns: before, after, before, after."""

from collections.abc import Sequence

import msgspec

from uncork.bench.fingerprints import differing
from uncork.errors import BadInput, NotComparable
from uncork.model.bench import BenchRun, LevelResult


def merged(runs: Sequence[BenchRun]) -> BenchRun:
    """The runs as one whose repeats are all of theirs.

    Raises `BadInput` where one is named twice, `NotComparable` where they were not measured alike.
    """
    first = runs[0]
    if len({run.run_id for run in runs}) < len(runs):
        raise BadInput("A run is named twice; nothing was compared.", next="name every folder once")
    for other in runs[1:]:
        if differs := [f"{one.name}: {one.was} → {one.now}" for one in differing(first, other)]:
            raise NotComparable(
                f"Runs {first.run_id} and {other.run_id} are to count as one, and differ in {'; '.join(differs)}.",
                next="name runs of one setting together",
            )
    if len(runs) == 1:
        return first
    levels: list[LevelResult] = []
    for run in runs:
        shift = 1 + max((level.repeat for level in levels), default=-1)
        levels += [msgspec.structs.replace(one, repeat=one.repeat + shift) for one in run.levels]
    return msgspec.structs.replace(
        first,
        run_id="+".join(run.run_id for run in runs),
        levels=tuple(levels),
        finished=all(run.finished for run in runs),
        stopped="; ".join(run.stopped for run in runs if run.stopped),
    )
