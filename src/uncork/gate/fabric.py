"""The one interface that the criteria are written against: devices, paths, transfers, flags, counters."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from uncork.model.gate import Criterion, Depth, Figure, Fingerprint, Matrix
from uncork.model.unknown import Unknown


class Engine(StrEnum):
    """What moves the bytes: the copy engine (memcpy), or loads and stores of a running kernel."""

    COPY = "copy"
    KERNEL = "kernel"


class Direction(StrEnum):
    """Who starts it: push, the source writes to its peer; pull, the destination reads from its peer."""

    PUSH = "push"
    PULL = "pull"


class Ended(StrEnum):
    """How an operation ended. Refused: the driver said no before a byte moved; failed: it broke on the way."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    HANG = "hang"


class Device(msgspec.Struct, frozen=True):
    """One end of a path; devices stand in topology order (switch, root, socket), which the shifts rely on."""

    index: int
    label: str
    bus_id: str
    model: str = ""


class Path(msgspec.Struct, frozen=True):
    """What lies between two devices.

    `kind`: same-switch, same-root, same-socket, cross-socket, nvlink, xgmi, numa-local, numa-remote, unknown.
    `raw_gb_s`: line rate of the slowest link, one direction, before packet headers; None if not known.
    `generation`: PCIe generation of that link; `payload_bytes`: MaxPayload of the path.
    `platform`: turin, genoa, intel or empty, since cross-socket floors differ by it.
    `components`: everything that can be at fault, sender first.
    """

    kind: str
    components: tuple[str, ...]
    raw_gb_s: float | None = None
    generation: int = 0
    payload_bytes: int = 0
    platform: str = ""


class Move(msgspec.Struct, frozen=True):
    """One transfer. `size_bytes` and `offset_bytes` are multiples of 4; `key` names the pattern when checked.

    Unchecked moves are timed: `loops` copies back to back. Checked moves start from a poisoned destination
    with guards on both sides; the owner of the destination compares, the owner of the source re-checks it.
    """

    src: int
    dst: int
    engine: Engine
    direction: Direction
    size_bytes: int
    offset_bytes: int = 0
    loops: int = 1
    key: int | None = None


class Moved(msgspec.Struct, frozen=True):
    """What became of a move; `seconds` is timed at the initiator, never at the coordinator.

    `disturbed`: other processes took the CPUs away while it was timed (host memory only).
    """

    ended: Ended = Ended.OK
    seconds: float = 0.0
    wrong_words: int = 0
    first_wrong_bytes: int = -1
    guard_touched: bool = False
    source_changed: bool = False
    disturbed: bool = False
    says: str = ""


class Flagged(msgspec.Struct, frozen=True):
    """A flag ping-pong with payload: one-way time, rounds done, reads that saw the flag before the data."""

    ended: Ended = Ended.OK
    one_way_ns: float = 0.0
    rounds: int = 0
    stale: int = 0
    says: str = ""


class Counter(msgspec.Struct, frozen=True):
    """An error counter of a component. `kind`: fatal, nonfatal, iommu, xid, ecc or correctable."""

    component: str
    kind: str
    value: int | Unknown


class Link(msgspec.Struct, frozen=True):
    """A link under load: what it runs at, and what both ends can do."""

    component: str
    generation: int | Unknown
    width: int | Unknown
    max_generation: int | Unknown
    max_width: int | Unknown


class Register(msgspec.Struct, frozen=True):
    """A setting of a component that decides how fast or by which way peers reach each other, as it reads now."""

    component: str
    name: str
    value: str | Unknown


class AllReduce(msgspec.Struct, frozen=True):
    """The server's collective library: microseconds by size, the transports its log names, or how it hung."""

    library: str
    samples_us: dict[int, tuple[float, ...]]
    transports: dict[str, str]
    hung: str = ""


class Stuck(Exception):
    """A rank cannot be killed: the run ends here. `says` what to do about it."""

    def __init__(self, device: int, says: str) -> None:
        super().__init__(says)
        self.device = device
        self.says = says


class Fabric(Protocol):
    """Three of them: CUDA, host memory, simulated. The criteria cannot tell which one they are asking."""

    @property
    def name(self) -> str:
        """cuda, host or simulated."""
        ...

    @property
    def simulated(self) -> bool:
        """Whether the figures describe no real machine."""
        ...

    @property
    def tested(self) -> str:
        """A sentence: what a run on this fabric tests, and what it does not."""
        ...

    @property
    def kernel(self) -> str:
        """Which code moves and checks the bytes."""
        ...

    @property
    def devices(self) -> tuple[Device, ...]:
        """The ends, in topology order."""
        ...

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Every ordered pair that must be asked."""
        ...

    @property
    def engines(self) -> tuple[Engine, ...]:
        """What can move bytes here."""
        ...

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(size, offset) in bytes of the integrity checks, smallest first."""
        ...

    @property
    def bandwidth_bytes(self) -> int:
        """Size of one timed copy."""
        ...

    @property
    def deadline_floor_s(self) -> float:
        """The shortest deadline of an operation, however small."""
        ...

    @property
    def does_not_apply(self) -> dict[Criterion, str]:
        """Criteria that do not arise on this fabric, each with its reason."""
        ...

    def path(self, src: int, dst: int) -> Path:
        """What lies between two devices."""
        ...

    def capacity_gb_s(self, component: str) -> float | None:
        """What a component carries in one direction, all flows together; None where it is not known."""
        ...

    def preconditions(self) -> tuple[str, ...]:
        """What makes a verdict worthless before anything runs (foreign load, MIG, small /dev/shm)."""
        ...

    def access(self) -> dict[tuple[int, int], dict[str, bool | Unknown]]:
        """For each ordered pair, what the driver grants: kind (peer, ipc, vmm, …) -> granted."""
        ...

    def move(self, moves: Sequence[Move], *, deadline_s: float) -> tuple[Moved, ...]:
        """Run these transfers at the same time. Raises `Stuck`."""
        ...

    def flag(self, src: int, dst: int, *, rounds: int, deadline_s: float) -> Flagged | Unknown:
        """Ping-pong of payload and flag between kernels of two devices. Raises `Stuck`."""
        ...

    def counters(self) -> tuple[Counter, ...]:
        """Error counters of every component, both ends of each link."""
        ...

    def registers(self) -> tuple[Register, ...]:
        """Settings of GPUs and bridges that must not move while they are tested."""
        ...

    def links(self, pairs: Sequence[tuple[int, int]]) -> tuple[Link, ...] | Unknown:
        """Every link, read while traffic flows between these pairs."""
        ...

    def all_reduce(self, sizes: Sequence[int], *, rounds: int) -> AllReduce | Unknown:
        """Latency of the server's own collective library."""
        ...

    def extra_figures(self, depth: Depth) -> tuple[Figure, ...]:
        """Figures beside the pairs (core to core, wake-up, read bandwidth)."""
        ...

    def extra_matrices(self, depth: Depth) -> tuple[Matrix, ...]:
        """Matrices beside the criteria (load latency, core to core)."""
        ...

    def fingerprint(self) -> Fingerprint:
        """What must be equal for a later result to be compared with this one."""
        ...

    def context(self, pairs: Sequence[tuple[int, int]]) -> dict[str, str]:
        """What to read beside a failure: ACS, IOMMU type, BAR1, link state of these pairs' paths."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What a person should know beside the verdict (stale P2P caches of servers, tools that failed)."""
        ...

    def now_s(self) -> float:
        """The clock that budgets are kept in."""
        ...

    def close(self) -> None:
        """End every process and give back the memory."""
        ...
