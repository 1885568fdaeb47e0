"""NUMA nodes and placement."""

import msgspec

from uncork.model.facts.container import Counter
from uncork.model.unknown import Unknown


class NumaNode(msgspec.Struct, frozen=True):
    """A node: CPUs, memory, and how far the others are (10 is itself)."""

    number: int
    cpus: tuple[int, ...] | Unknown
    memory_bytes: int | Unknown
    free_bytes: int | Unknown
    file_bytes: int | Unknown  # page cache
    inactive_file_bytes: int | Unknown
    distances: tuple[int, ...] | Unknown
    missed: Counter | Unknown  # pages that another node wanted and got here


class Vectors(msgspec.Struct, frozen=True):
    """A device on a node, and the interrupts of it that are served elsewhere."""

    bdf: str
    kind: str  # gpu, nic, nvme
    node: int | Unknown
    local_cpus: tuple[int, ...] | Unknown
    remote: tuple[tuple[int, tuple[int, ...]], ...]  # interrupt, CPUs that serve it
    count: int


class Residence(msgspec.Struct, frozen=True):
    """Where the memory of a serving process is."""

    pid: int
    node_bytes: dict[int, int]
    policy_bytes: dict[str, int]  # default, bind:0, interleave:0-1, …


class NumaFacts(msgspec.Struct, frozen=True):
    """NUMA nodes and placement."""

    nodes: tuple[NumaNode, ...] | Unknown
    devices: tuple[Vectors, ...] | Unknown
    residences: dict[int, Residence | Unknown]  # by pid of serving processes, where there are several nodes
    numactl: dict[int, bool | Unknown]  # by pid of servers: whether numactl or libnuma is in its root
