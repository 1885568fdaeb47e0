"""Small pictures in a terminal: how near to the bound, and where a token's time went."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from uncork.model.bound import Waterfall

FULL, EMPTY = "█", "·"
EIGHTHS = "▏▎▍▌▋▊▉"
LABEL = 20
LEAST_SHARE = 0.005  # of the measured time: a smaller part is no bar anyone would see


def bar(share: float, width: int, *, plain: bool = False) -> str:
    """`share` (0 to 1, more is full) as a bar of `width` columns; `plain` uses ASCII alone."""
    share = min(1.0, max(0.0, share))
    if plain:
        full = round(share * width)
        return "#" * full + "." * (width - full)
    eighths = round(share * width * 8)
    full, rest = divmod(eighths, 8)
    drawn = FULL * full + (EIGHTHS[rest - 1] if rest else "")
    return drawn + EMPTY * (width - len(drawn))


def efficiency(share: float, width: int = 80, *, plain: bool = False) -> str:
    """One line: a bar of what was measured over the bound."""
    return f"{bar(share, max(10, width - LABEL - 9), plain=plain)} {share:>7.1%}"


def waterfall(found: "Waterfall", width: int = 80, *, plain: bool = False) -> Iterator[str]:
    """A line a part, each bar beginning where the one above it ends; together they are the measured time.

    A negative part (a term taken too high for this host) is drawn back to the left with `<`.
    """
    columns = max(10, width - LABEL - 14)
    largest, at = found.measured_ns, 0
    for one in found.bars:
        at += one.ns
        largest = max(largest, at)
    start = 0
    for one in found.bars:
        end = start + one.ns
        if abs(one.ns) >= LEAST_SHARE * largest:
            low, high = (max(0, round(place / largest * columns)) for place in sorted((start, end)))
            sign = "<" if one.ns < 0 else "#" if plain else FULL
            drawn = " " * low + sign * max(1, high - low)
            yield f"{one.part[: LABEL - 1]:<{LABEL}}{drawn:<{columns + 1}}{one.ms:>10,.3f} ms"
        start = end
    whole = ("#" if plain else FULL) * round(found.measured_ns / largest * columns)
    yield f"{'measured':<{LABEL}}{whole:<{columns + 1}}{found.measured_ms:>10,.3f} ms"


def plain(out: "Console") -> bool:
    """Whether the terminal can show no more than ASCII: TERM=dumb, or an encoding without blocks."""
    if out.is_dumb_terminal:
        return True
    try:
        (FULL + EIGHTHS + EMPTY).encode(out.encoding)
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def lines(share: float | None, found: "Waterfall | None", out: "Console") -> Sequence[str]:
    """What a verb prints below its outcome, as wide as the terminal, at most 100 columns."""
    width, simple = min(100, out.width) - 1, plain(out)
    drawn = []
    if share is not None:
        drawn.append(f"{'of the bound':<{LABEL}}" + efficiency(share, width, plain=simple))
    if found is not None:
        drawn += ["", "Where one token's time went:", *waterfall(found, width, plain=simple)]
    return drawn
