"""How much runs of one unchanged server differ on a host."""

import msgspec


class NoiseFloor(msgspec.Struct, frozen=True):
    """One metric over all levels: standard deviations of its logarithm, and how sure they are.

    `between` is what separates whole runs beyond their repeats, `within` what separates the repeats of a run (one
    repeat of all levels); `freedom` is the number of runs less one. `smallest` maps repeats a run to the least
    difference (a share) that two runs of so many repeats must show not to be noise, at 95 %.
    """

    metric: str
    between: float
    within: float
    freedom: int
    smallest: dict[int, float]


class Noise(msgspec.Struct, frozen=True):
    """The floor of every metric, learnt from `runs` runs of `repeats` repeats with nothing changed."""

    schema: int
    runs: int
    repeats: int
    workload_hash: str
    model: str
    floors: tuple[NoiseFloor, ...]
