"""What passing is: the limits of every criterion, each with where it comes from.

Floors are fractions of the line rate of the slowest link on a path, from published results of healthy hosts
(RTX PRO 6000, 5090, 4090, A6000, A100, H100, H800, B300, MI300X and others; see docs/gate.md).
"""

import msgspec

from uncork.gate.fabric import Path

# Criterion E. A flag written by one GPU and polled by another needs 0.6-1.1 us over one or two switches and
# 1.3 us across chips; through host memory it needs 10-25 us.
FLAG_STAGED_NS = 8000.0
FLAG_WARN_NS = 4000.0
FLAG_CLASS_FACTOR = 3.0
KERNEL_OF_COPY_FAIL = 0.5
KERNEL_OF_COPY_WARN = 0.75

# Criterion F.
OF_BASELINE_FAIL = 0.92
OF_BASELINE_WARN = 0.95
OF_CLASS_FAIL = 0.85
ASYMMETRY_FAIL = 1.25
ASYMMETRY_WARN = 1.15
CEILING_SLACK = 1.01
# A PCIe transaction-layer packet with a 64-bit address costs 20 bytes around its payload: 4 framing,
# 12 of 16 header bytes beyond what the link layer folds in, 4 LCRC. Best published result: 57.83 of 59.0.
PACKET_BYTES = 20

# Criterion G.
PATTERN_OF_BASELINE_FAIL = 0.85
PATTERN_OF_BASELINE_WARN = 0.92
PATTERN_OF_BOUND_FAIL = 0.5
WRITE_OF_READ_FAIL = 0.5

# Criterion H.
LATENCY_FACTOR_FAIL = 1.15
FLAG_SLACK_NS = 200.0
ALL_REDUCE_SLACK_US = 1.0

# Criterion I: corrected errors a run may count for each 10 GB that it moved. No base rate is published; DCGM
# allows 80 replays and 480 AER lines, which is too loose for a gate.
CORRECTABLE_PER_10_GB = 1.0

# Criterion K.
DEADLINE_FACTOR = 20.0

# Statistics: more cells than this that fail first and pass later mean that the host is not quiet.
UNSTABLE_FRACTION = 0.05

# DDR3-1066 moves 8.5 GB/s a channel, and a copy reads and writes: nothing slower runs a 64-bit server.
HOST_COPY_FLOOR_GB_S = 8.5 / 2


class Floor(msgspec.Struct, frozen=True):
    """The least a healthy path delivers, GB/s; `advisory` where too few published results stand behind it."""

    fail_gb_s: float
    warn_gb_s: float
    advisory: bool
    source: str


# (kind of path, generation or 0 for any, platform or "" for any) -> fail, warn, advisory, basis
_FLOORS: tuple[tuple[tuple[str, ...], int, str, float, float, bool, str], ...] = (
    (("nvlink",), 0, "", 0.78, 0.82, False, "0.82-0.97 published on 9 NVLink systems"),
    (("xgmi",), 0, "", 0.68, 0.73, False, "0.74-0.77 published for MI300X and MI350X"),
    # Two Turin hosts contradict each other, so neither may fail a host that nobody measured before.
    (
        ("cross-socket",),
        5,
        "turin",
        0.70,
        0.78,
        True,
        "0.80-0.81 published on one Turin host, 0.57-0.64 on another",
    ),
    (("cross-socket",), 0, "intel", 0.55, 0.60, True, "0.635 published in one thread about two Xeons"),
    (("cross-socket",), 0, "", 0.55, 0.60, False, "0.57-0.71 published on 4 EPYC hosts"),
    (
        ("same-switch", "same-root", "same-socket"),
        5,
        "",
        0.80,
        0.84,
        False,
        "0.83-0.918 published on 5 hosts",
    ),
    (
        ("same-switch", "same-root", "same-socket"),
        4,
        "",
        0.75,
        0.79,
        False,
        "0.82-0.84 published for 4090, A6000, Ada",
    ),
    (("same-switch", "same-root", "same-socket"), 3, "", 0.60, 0.70, True, "few and old results, 0.65-0.76"),
)
# One PCIe generation or half the lanes lost leaves half the rate (arithmetic): below this something is broken.
_HARD = 0.45


def floor(path: Path) -> Floor | None:
    """The link-derived floor of a path; None where its line rate is not known."""
    if path.kind.startswith("numa"):
        source = "half of one DDR3-1066 channel, the slowest memory of a 64-bit server (arithmetic)"
        return Floor(HOST_COPY_FLOOR_GB_S, HOST_COPY_FLOOR_GB_S, False, source)
    if path.raw_gb_s is None:
        return None
    raw = path.raw_gb_s
    for kinds, generation, platform, fail, warn, advisory, basis in _FLOORS:
        if path.kind in kinds and generation in (0, path.generation) and platform in ("", path.platform):
            return Floor(fail * raw, warn * raw, advisory, f"{fail:g} of {raw:.1f} GB/s line rate; {basis}")
    return Floor(
        _HARD * raw, _HARD * raw, False, f"{_HARD:g} of {raw:.1f} GB/s line rate: half the link is lost"
    )


def hard_floor_gb_s(path: Path) -> float | None:
    """Below this no PCIe path is healthy, whatever its class."""
    return None if path.raw_gb_s is None else _HARD * path.raw_gb_s


def ceiling_gb_s(path: Path) -> float | None:
    """What cannot be exceeded; a higher figure is a broken measurement. None where the line rate is not known."""
    if path.raw_gb_s is None:
        return None
    if path.kind in ("nvlink", "xgmi"):
        return path.raw_gb_s * CEILING_SLACK
    payload = path.payload_bytes or 512
    return path.raw_gb_s * payload / (payload + PACKET_BYTES) * CEILING_SLACK
