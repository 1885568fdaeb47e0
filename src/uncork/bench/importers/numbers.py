"""Numbers out of other tools' files: absent, null and not a number are all None, never 0."""

import math
from collections.abc import Mapping
from typing import Any

from uncork.model.imported import Latency


def number(found: Mapping[str, Any], *names: str, scale: float = 1.0) -> float | None:
    """The first of these names that holds a number, scaled; `inf` and Infinity stay infinite."""
    for name in names:
        value = found.get(name)
        if isinstance(value, str) and value.strip().lower() in ("inf", "infinity"):
            return math.inf
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            continue
        return float(value) * scale
    return None


def whole(found: Mapping[str, Any], *names: str) -> int | None:
    """As `number`, for counts."""
    return count(number(found, *names))


def count(value: float | None) -> int | None:
    """A number as a count; infinity is none."""
    return None if value is None or math.isinf(value) else int(value)


def text(found: Mapping[str, Any], *names: str) -> str | None:
    """The first of these names that holds text."""
    return next((str(found[name]) for name in names if isinstance(found.get(name), str)), None)


def latency(found: Any, scale: float = 1.0) -> Latency:
    """A summary with keys such as mean/avg, median/p50, p90, p95, p99 (or a nested `percentiles`)."""
    if not isinstance(found, Mapping):
        return Latency()
    nested = found.get("percentiles")
    flat = {**(nested if isinstance(nested, Mapping) else {}), **found}
    return Latency(
        mean_ms=number(flat, "mean", "avg", scale=scale),
        median_ms=number(flat, "median", "p50", scale=scale),
        p90_ms=number(flat, "p90", scale=scale),
        p95_ms=number(flat, "p95", scale=scale),
        p99_ms=number(flat, "p99", scale=scale),
    )


def scalars(found: Mapping[str, Any]) -> dict[str, str | float | int | bool | None]:
    """The file's own scalars under its own names; long texts and arrays are left out."""
    return {
        name: value
        for name, value in found.items()
        if value is None or (isinstance(value, bool | int | float | str) and len(str(value)) < 500)
    }
