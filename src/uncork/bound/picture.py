"""The tiers over concurrency, drawn with characters on a logarithmic scale."""

import math
from collections.abc import Sequence

from uncork.model.bound import Bound

WIDTH = 62  # of the scale; with its margin a line fits 80 columns


def draw(bounds: Sequence[Bound], measured: float | None = None) -> list[str]:
    """One line a concurrency: E engine, F fabric, S silicon (uniform routing), `-` to S's limit, M measured."""
    values = [t.tok_s for b in bounds for t in (b.silicon, b.fabric, b.engine)]
    values += [t.tok_s_uniform for b in bounds for t in (b.silicon, b.fabric, b.engine)]
    values += [measured] if measured else []
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def column(value: float) -> int:
        return round((math.log10(value) - low) / (high - low) * (WIDTH - 1))

    lines = [_scale(low, high)]
    for bound in bounds:
        row = ["." if i < column(bound.engine.tok_s_uniform) else " " for i in range(WIDTH)]
        for i in range(column(bound.silicon.tok_s_uniform), column(bound.silicon.tok_s) + 1):
            row[i] = "-"
        for letter, value in (
            ("S", bound.silicon.tok_s_uniform),
            ("F", bound.fabric.tok_s_uniform),
            ("E", bound.engine.tok_s_uniform),
            *([("M", measured)] if measured else []),
        ):
            row[column(value)] = letter
        lines.append(f"{bound.concurrency:>6} users  " + "".join(row).rstrip())
    lines.append(
        "E engine tier   F fabric   S silicon (--- up to its limit)" + ("   M measured" if measured else "")
    )
    return lines


def _scale(low: int, high: int) -> str:
    row = [" "] * (WIDTH + 8)
    for power in range(low, high + 1):
        at = round((power - low) / (high - low) * (WIDTH - 1))
        label = f"{10.0**power:,.0f}" if power >= 0 else f"{10.0**power:g}"
        at = max(0, min(at, WIDTH - len(label)))
        row[at : at + len(label)] = label
    return " tok/s        " + "".join(row).rstrip()
