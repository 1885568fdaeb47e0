"""The noise floor of a host: the same suite several times with nothing changed.

The runs follow each other, as the run before and the run after a change do: what the host does between two runs
(another neighbour, a warmer room, another placement) does not show in the repeats of one run, and is what makes an
interval from repeats alone too narrow. At least three runs; the floor is wide until there are five or so.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean, variance

import msgspec

from uncork.bench.compare import METRICS, Metric
from uncork.bench.spec import SuiteSpec
from uncork.bench.statistics import t_quantile
from uncork.bench.suite import Progress, Watch, run_suite
from uncork.errors import BadInput, MeasureFailed
from uncork.model.bench import BenchRun
from uncork.model.noise import Noise, NoiseFloor

SCHEMA = 1
FILE = "noise.json"
FEWEST = 3
REPEATS = (1, 3, 5, 10, 20)
CONFIDENCE = 0.95


def measure_noise(
    spec: SuiteSpec,
    runs: int,
    *,
    out: Path,
    progress: Callable[[Progress], None] = lambda state: None,
    watch: Watch | None = None,
) -> Noise:
    """Run the suite `runs` times into `out`/1, 2 … and write `out`/noise.json; finished levels are kept.

    Each run has a seed of its own, so that no prompt is asked twice. Raises `BadInput`, and as `run_suite`.
    """
    if runs < FEWEST:
        raise BadInput(
            f"{runs} runs say too little about noise; nothing was sent.", next=f"at least {FEWEST} runs"
        )
    done = [
        run_suite(
            msgspec.structs.replace(spec, seed=spec.seed * 1_000_003 + number),
            out=out / str(number),
            progress=progress,
            watch=watch,
        )
        for number in range(1, runs + 1)
    ]
    found = noise(done)
    (out / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    return found


def noise(runs: Sequence[BenchRun]) -> Noise:
    """What separates runs that should be equal. Raises `MeasureFailed` where fewer than three can be used."""
    floors = [floor for metric in METRICS if (floor := _floor(runs, metric))]
    if not floors:
        raise MeasureFailed(
            f"Fewer than {FEWEST} of {len(runs)} runs have valid levels in common; there is no noise floor.",
            next="uncork bench --self-test (is the client the limit?), then measure again",
        )
    repeats = min(len({level.repeat for level in run.levels}) for run in runs)
    return Noise(SCHEMA, len(runs), repeats, runs[0].workload_hash, runs[0].model, tuple(floors))


def smallest(floor: NoiseFloor, repeats: int) -> float:
    """The least ln ratio that two runs of so many repeats must show (95 % of two new runs stay below it)."""
    spread = math.sqrt(2 * (floor.between**2 + floor.within**2 / repeats))
    return t_quantile(0.5 + CONFIDENCE / 2, floor.freedom) * spread


def floors(known: Noise, before: BenchRun, after: BenchRun) -> dict[str, float]:
    """Metric → the |ln ratio| that these two runs must exceed; empty where the floor is of another model."""
    if known.model != before.model:
        return {}
    repeats = min(len({level.repeat for level in run.levels}) for run in (before, after))
    return {floor.metric: smallest(floor, max(1, repeats)) for floor in known.floors}


def read_noise(path: Path) -> Noise | None:
    """The floor stored there; None where there is none. Raises `BadInput`."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Noise)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise BadInput(f"{path} is no noise floor: {error}.", next="measure it again") from error


def _floor(runs: Sequence[BenchRun], metric: Metric) -> NoiseFloor | None:
    tables = [table for run in runs if (table := _by_repeat(run, metric))]
    if len(tables) < FEWEST:
        return None
    common = set.intersection(*(set(table[0]) for table in tables))
    if not common:
        return None
    repeats = [[fmean(row[level] for level in common) for row in table] for table in tables]
    several = [variance(rows) for rows in repeats if len(rows) > 1]
    within = fmean(several) if several else 0.0
    size = fmean(len(rows) for rows in repeats)
    between = max(0.0, variance([fmean(rows) for rows in repeats]) - within / size)
    floor = NoiseFloor(metric.name, math.sqrt(between), math.sqrt(within), len(tables) - 1, {})
    # With one repeat a run the two cannot be told apart: all of it then counts as between.
    known = REPEATS if within else (1,)
    return msgspec.structs.replace(floor, smallest={n: math.expm1(smallest(floor, n)) for n in known})


def _by_repeat(run: BenchRun, metric: Metric) -> list[dict[str, float]]:
    """ln of the metric by level, one row a repeat; only repeats in which every level is valid."""
    names = {level.level for level in run.levels}
    rows: dict[int, dict[str, float]] = {}
    for level in run.levels:
        value = metric.read(level)
        if level.valid and value is not None and value > 0:
            rows.setdefault(level.repeat, {})[level.level] = math.log(value)
    return [row for row in rows.values() if set(row) == names]
