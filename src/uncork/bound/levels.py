"""A benchmark's levels beside their bounds: efficiency at every concurrency, and what moved between two runs."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Any

import msgspec

from uncork.bound import efficiency, waterfall
from uncork.bound.decode import decode_bound
from uncork.bound.efficiency import Efficiency
from uncork.bound.waterfall import Moved
from uncork.model.bench import BenchRun
from uncork.model.bound import Bound, Hardware, ModelBytes, Parallel, Waterfall


class Measured(msgspec.Struct, frozen=True):
    """One level: users at once, tokens cached in the middle of an answer, and decoded tokens/s over all users."""

    level: str
    concurrency: int
    context_len: int
    tok_s: float


class Against(msgspec.Struct, frozen=True):
    """A measured level, its bound, its share of each tier and where its time went."""

    measured: Measured
    bound: Bound
    efficiency: Efficiency
    waterfall: Waterfall


def measured_in(run: BenchRun) -> tuple[Measured, ...]:
    """The closed-loop levels of a run, as medians over valid repeats.

    Decoded tokens/s is concurrency x 1000 / mean TPOT, which leaves the time to the first token out as a decode
    bound does; a level whose server sends no times a token has none and is left out.
    """
    by_level: dict[str, list[tuple[int, int, float]]] = {}
    for one in run.levels:
        if one.valid and one.concurrency and one.tpot_ms and one.tpot_ms.mean > 0:
            context = one.input_len + one.output_len // 2
            rate = one.concurrency * 1e3 / one.tpot_ms.mean
            by_level.setdefault(one.level, []).append((one.concurrency, context, rate))
    return tuple(
        Measured(level, found[0][0], found[0][1], median(rate for _, _, rate in found))
        for level, found in by_level.items()
    )


def against(
    model: ModelBytes,
    hardware: Hardware,
    parallel: Parallel,
    levels: Iterable[Measured],
    **options: Any,
) -> tuple[Against, ...]:
    """Each level held against its own bound; options and errors are those of `decode.decode_bound`."""
    return tuple(_one(model, hardware, parallel, level, options) for level in levels)


def _one(
    model: ModelBytes, hardware: Hardware, parallel: Parallel, level: Measured, options: dict[str, Any]
) -> Against:
    bound = decode_bound(model, hardware, parallel, level.context_len, level.concurrency, **options)
    return Against(level, bound, efficiency.of(level.tok_s, bound), waterfall.of(bound, level.tok_s))


def beside(rows: Sequence[Against]) -> Iterator[str]:
    """A table of 80 columns: measured speed and its share of each tier, strict and with uniform routing."""
    yield f"{'level':<14}{'users':>6}{'tok/s':>10}{'of silicon':>16}{'of fabric':>16}{'of engine':>16}"
    for row in rows:
        shares = (row.efficiency.silicon, row.efficiency.fabric, row.efficiency.engine)
        cells = "".join(f"{_span(share):>16}" for share in shares)
        yield f"{row.measured.level[:14]:<14}{row.measured.concurrency:>6}{row.measured.tok_s:>10,.1f}{cells}"
    if any("silicon" in row.efficiency.beaten for row in rows):
        yield "Above 100 % of silicon: the model, the device or the batch is not what was said."


def _span(share: tuple[float, float]) -> str:
    low, high = (f"{value:.1%}" for value in share)
    return low if low == high else f"{low}-{high}"


class Shift(msgspec.Struct, frozen=True):
    """One level in two runs: ms a token before and after, and the bars that moved, the largest first."""

    level: str
    before_ms: float
    after_ms: float
    moved: tuple[Moved, ...]


def shifts(before: Sequence[Against], after: Sequence[Against]) -> tuple[Shift, ...]:
    """What moved at every level that both runs have. Compute each run's rows with what was true of its host
    then (its own all-reduce curve, its own copy bandwidth), or only the unexplained bar can move."""
    second = {row.measured.level: row for row in after}
    return tuple(
        Shift(
            row.measured.level,
            row.waterfall.measured_ms,
            second[row.measured.level].waterfall.measured_ms,
            waterfall.moved(row.waterfall, second[row.measured.level].waterfall),
        )
        for row in before
        if row.measured.level in second
    )


def shift_lines(found: Iterable[Shift]) -> Iterator[str]:
    """The shifts for a person, at most 80 columns."""
    for shift in found:
        change = shift.after_ms - shift.before_ms
        yield f"{shift.level}: {shift.before_ms:,.3f} -> {shift.after_ms:,.3f} ms a token ({change:+,.3f})"
        for moved in shift.moved:
            yield f"  {moved.delta_ms:>+12,.3f} ms  {moved.part} ({moved.before_ms:,.3f} -> {moved.after_ms:,.3f})"


def read_run(path: str) -> BenchRun:
    """The run in a folder of `uncork bench` (its summary.json). Raises BadInput where it is none."""
    from pathlib import Path

    from uncork.errors import BadInput

    file = Path(path) / "summary.json" if Path(path).is_dir() else Path(path)
    try:
        return msgspec.json.decode(file.read_bytes(), type=BenchRun)
    except OSError as error:
        raise BadInput(
            f"{file} cannot be read: {error.strerror}", next="give a folder of uncork bench"
        ) from None
    except msgspec.DecodeError as error:
        raise BadInput(f"{file} is not a run of uncork bench: {error}") from None
