"""perf top/report/script, bcc funclatency: which kernel function takes the time."""

import re

import msgspec

_SHARE = re.compile(
    r"^\s*(\d{1,3}(?:\.\d{1,4})?)%\s+(?:\S+\s+){0,2}?\[(?:kernel[^\]]*|k)\]\s+(?:\[k\]\s+)?([\w.]+)"
)
_STACK = re.compile(r"^\s+[0-9a-f]{8,16} ([\w.]+)(?:\+0x[0-9a-f]+)?")
_BUCKET = re.compile(r"^\s*(\d{1,12}) -> (\d{1,12})\s*: (\d{1,12})\s")
_UNIT = re.compile(r"^\s*(\w*secs)\s*: count")
_AVERAGE = re.compile(r"^avg = (\d{1,12}) (\w*secs), total: (\d{1,15}) \w*secs, count: (\d{1,12})")
_TARGET = re.compile(
    r"\b(?:funclatency\S*|Tracing \d+ functions for)\b.*?\"?([a-z_]\w{3,60})\"?(?:\s*$|\.\.\.)"
)


class Latency(msgspec.Struct, frozen=True):
    """A histogram of one function: (from, to, count) in `unit`."""

    function: str = ""
    unit: str = ""
    buckets: tuple[tuple[int, int, int], ...] = ()
    average: int | None = None
    count: int | None = None


class Profile(msgspec.Struct, frozen=True):
    """Kernel functions: share of samples in per cent, functions seen in stacks, one latency histogram."""

    shares: dict[str, float] = {}
    stacks: tuple[str, ...] = ()
    latency: Latency | None = None


def parse(text: str, hint: str = "") -> Profile:
    """Read any of them; `hint` is the command above, which names the function that was timed."""
    shares: dict[str, float] = {}
    stacks: dict[str, None] = {}
    buckets: list[tuple[int, int, int]] = []
    unit, average, count = "", None, None
    named = _TARGET.search(hint) or _TARGET.search(text[:2000])
    for line in text.split("\n"):
        line = line[:500]
        if found := _SHARE.match(line):
            shares[found[2]] = max(shares.get(found[2], 0.0), float(found[1]))
        elif found := _BUCKET.match(line):
            buckets.append((int(found[1]), int(found[2]), int(found[3])))
        elif found := _STACK.match(line):
            stacks[found[1]] = None
        elif found := _UNIT.match(line):
            unit = found[1]
        elif found := _AVERAGE.match(line):
            average, count, unit = int(found[1]), int(found[4]), unit or found[2]
    histogram = bool(buckets) or average is not None
    return Profile(
        shares,
        tuple(stacks),
        Latency(named[1] if named else "", unit, tuple(buckets), average, count) if histogram else None,
    )
