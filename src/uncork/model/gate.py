"""What the gate says: a verdict, what each criterion found, every matrix with its samples, and what was tested."""

from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """Pass only when everything ran for every pair; inconclusive when something did not run."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Depth(StrEnum):
    """How much is run: quick after one change, full before a benchmark, soak for load-dependent faults."""

    QUICK = "quick"
    FULL = "full"
    SOAK = "soak"


class Criterion(StrEnum):
    """The eleven criteria, in the order in which they run."""

    ACCESS = "access"
    INTEGRITY = "integrity"
    INTEGRITY_LOADED = "integrity-loaded"
    ORDERING = "ordering"
    DIRECT = "direct"
    BANDWIDTH = "bandwidth"
    CONCURRENCY = "concurrency"
    LATENCY = "latency"
    COUNTERS = "counters"
    LINK = "link"
    LIVENESS = "liveness"


class Trouble(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that a criterion found; `src` and `dst` are device indices, -1 where it is not about a pair.

    `blocking` is false for a warning. `measured` and `limit` are in `unit`; `source` says where the limit
    comes from.
    """

    says: str
    src: int = -1
    dst: int = -1
    blocking: bool = True
    measured: float | None = None
    limit: float | None = None
    unit: str = ""
    source: str = ""
    component: str = ""


class CriterionResult(msgspec.Struct, frozen=True):
    """What one criterion says. `not_run` lists what it could not or did not ask; `applies` false: see `says`."""

    criterion: Criterion
    verdict: Verdict
    says: str
    troubles: tuple[Trouble, ...] = ()
    not_run: tuple[str, ...] = ()
    applies: bool = True


class Cell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ordered pair of a matrix: the estimate, every sample it came from, and the limit it was held to.

    `value` is None where nothing valid was measured; `unstable` means it failed first and passed when measured
    again; `invalid` that the figure is above what the link can carry.
    """

    src: int
    dst: int
    value: float | None
    samples: tuple[float, ...] = ()
    limit: float | None = None
    unstable: bool = False
    invalid: bool = False
    why: str = ""


class Matrix(msgspec.Struct, frozen=True):
    """A figure for every ordered pair; `devices` labels rows (source) and columns (destination)."""

    name: str
    unit: str
    devices: tuple[str, ...]
    cells: tuple[Cell, ...]
    higher_is_better: bool = True


class Pattern(msgspec.Struct, frozen=True):
    """Several transfers at once: the aggregate in GB/s with its samples, and what single pairs add up to.

    `flows_gb_s` is the rate of each pair in the last sample.
    """

    name: str
    direction: str
    pairs: tuple[tuple[int, int], ...]
    gb_s: float | None
    samples: tuple[float, ...]
    bound_gb_s: float | None
    flows_gb_s: tuple[float, ...] = ()


class Figure(msgspec.Struct, frozen=True):
    """A single number beside the matrices, and how it was measured."""

    name: str
    value: float | None
    unit: str
    samples: tuple[float, ...] = ()
    how: str = ""


class Suspect(msgspec.Struct, frozen=True):
    """The component that explains failing pairs, or pairs that nothing shared explains (component empty)."""

    component: str
    pairs: tuple[tuple[int, int], ...]
    says: str
    advice: str


class Fingerprint(msgspec.Struct, frozen=True):
    """What must be equal for two results to be compared. `devices` are bus ids or node names in order."""

    fabric: str
    boot_id: str
    kernel: str
    cmdline: str
    driver: str
    devices: tuple[str, ...]
    version: str


class Baseline(msgspec.Struct, frozen=True):
    """An earlier result to compare with, every sample kept. `verdict` is what the gate said of it."""

    fingerprint: Fingerprint
    taken_at: str
    verdict: Verdict
    depth: Depth
    access: dict[str, bool]
    matrices: tuple[Matrix, ...]
    patterns: tuple[Pattern, ...]
    figures: tuple[Figure, ...]
    links: dict[str, str]


class GateResult(msgspec.Struct, frozen=True):
    """One run of the gate.

    `tested` says in a sentence what was tested and, where it matters, that no GPU was; `kernel` which code moved
    the bytes; `baseline` what was compared with, or why nothing was. `access` and `links` are kept for a later
    run to compare with. `cost_s` is in the fabric's own clock, virtual for a simulation.
    """

    schema: int
    version: str
    verdict: Verdict
    depth: Depth
    fabric: str
    simulated: bool
    tested: str
    kernel: str
    devices: tuple[str, ...]
    criteria: tuple[CriterionResult, ...]
    matrices: tuple[Matrix, ...]
    patterns: tuple[Pattern, ...]
    figures: tuple[Figure, ...]
    suspects: tuple[Suspect, ...]
    access: dict[str, bool]
    links: dict[str, str]
    context: dict[str, str]
    warnings: tuple[str, ...]
    fingerprint: Fingerprint
    baseline: str
    started_at: str
    cost_s: float
    next: str

    @property
    def exit(self) -> int:
        """0 pass, 1 fail, 2 inconclusive."""
        return {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.INCONCLUSIVE: 2}[self.verdict]
