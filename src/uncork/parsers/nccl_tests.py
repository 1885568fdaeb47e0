"""nccl-tests (all_reduce_perf and sisters): rows, wrong values, the average."""

import re

import msgspec

_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\d{1,7}(?:\.\d+)?)")
_WRONG = re.compile(r"# Out of bounds values\s*:\s*(\d{1,18})\s*(OK|FAILED)?")
_RANK = re.compile(r"#\s+Rank\s+(\d+).*?on\s+(\S+) device\s+(\d+) \[(\S+)\] (.*)$")
_ROW = re.compile(
    r"^\s*(\d{1,18})\s+(\d{1,18})\s+(\w+)\s+(?:(\w+)\s+(-?\d+)\s+)?([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+)"
)
_RANKS = re.compile(r"nranks (\d{1,6})")


class Row(msgspec.Struct, frozen=True):
    """One size, out of place: bytes, microseconds, GB/s and wrong values (None: N/A)."""

    size_bytes: int
    time_us: float
    algorithm_gb_s: float
    bus_gb_s: float
    wrong: int | None


class Run(msgspec.Struct, frozen=True):
    """One test run."""

    average_bus_gb_s: float | None = None
    out_of_bounds: int | None = None
    rows: tuple[Row, ...] = ()
    hosts: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # PCI addresses as printed
    ranks: int | None = None


def parse(text: str) -> Run:
    """Read a run, or its tail."""
    average = _AVERAGE.search(text)
    wrong = _WRONG.search(text)
    rows: list[Row] = []
    hosts: dict[str, None] = {}
    devices: list[str] = []
    for line in text.split("\n"):
        line = line[:400]
        if found := _ROW.match(line):
            time_us, algorithm, bus = (
                float(found[at]) if found[at].count(".") < 2 else 0.0 for at in (6, 7, 8)
            )
            wrong_values = int(found[9]) if found[9].isdecimal() and len(found[9]) < 19 else None
            rows.append(Row(int(found[1]), time_us, algorithm, bus, wrong_values))
        elif found := _RANK.match(line):
            hosts[found[2]] = None
            devices.append(found[4])
    ranks = _RANKS.search(text)
    return Run(
        float(average[1]) if average else None,
        int(wrong[1]) if wrong else None,
        tuple(rows),
        tuple(hosts),
        tuple(devices),
        int(ranks[1]) if ranks else (len(devices) or None),
    )
