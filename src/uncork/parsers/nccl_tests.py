"""nccl-tests (all_reduce_perf and sisters): wrong values and how many ranks."""

import re

import msgspec

_WRONG = re.compile(r"# Out of bounds values\s*:\s*(\d{1,18})")
_RANK = re.compile(r"#\s+Rank\s+\d+.*?on\s+\S+ device\s+\d+ \[")
_ROW = re.compile(
    r"^\s*\d{1,18}\s+\d{1,18}\s+\w+\s+(?:\w+\s+-?\d+\s+)?[\d.]+\s+[\d.]+\s+[\d.]+\s+(\d{1,18}|N/A)"
)
_RANKS = re.compile(r"nranks (\d{1,6})")


class Run(msgspec.Struct, frozen=True):
    """One test run; None is not printed. `wrong` sums the summary's count, else what the rows show."""

    wrong: int | None = None
    ranks: int | None = None


def parse(text: str) -> Run:
    """Read a run, or what is left of one: a log that was cut before its summary still has rows."""
    summary, ranks = _WRONG.search(text), _RANKS.search(text)
    rows = [found[1] for line in text.split("\n") if (found := _ROW.match(line[:400]))]
    counted = [int(wrong) for wrong in rows if wrong.isdecimal()]
    listed = sum(bool(_RANK.match(line[:400])) for line in text.split("\n"))
    return Run(
        int(summary[1]) if summary else sum(counted) if counted else None,
        int(ranks[1]) if ranks else (listed or None),
    )
