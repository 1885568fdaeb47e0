"""Network and RDMA."""

import msgspec

from uncork.model.facts.container import Counter
from uncork.model.unknown import Unknown


class Interface(msgspec.Struct, frozen=True):
    """A network interface that stands for hardware."""

    name: str
    bdf: str
    state: str | Unknown  # up, down, …
    mtu: int | Unknown
    speed_mbps: int | Unknown
    numa_node: int | Unknown
    rps: tuple[str, ...]  # masks of its receive queues


class RdmaPort(msgspec.Struct, frozen=True):
    """A port of an RDMA device. Error counters are since the driver was loaded, and over a short window."""

    device: str
    port: int
    bdf: str
    numa_node: int | Unknown
    interface: str  # its Ethernet interface, "" for InfiniBand
    state: str | Unknown  # ACTIVE, INIT, DOWN, …
    physical: str | Unknown  # LinkUp, Polling, Disabled, …
    rate_gbps: float | Unknown
    rate_text: str | Unknown
    layer: str | Unknown  # InfiniBand, Ethernet
    errors: dict[str, Counter]
    gid_types: tuple[str, ...] | Unknown
    vendor: str | Unknown
    relaxed_ordering: bool | Unknown  # DevCtl bit 4


class NetworkFacts(msgspec.Struct, frozen=True):
    """Network and RDMA."""

    sysctls: dict[str, str | Unknown]
    interfaces: tuple[Interface, ...] | Unknown
    ports: tuple[RdmaPort, ...] | Unknown
    sockets: dict[str, int] | Unknown  # "TCP tw", "TCP inuse", …
    listen: dict[str, Counter] | Unknown  # ListenOverflows, ListenDrops
    clock_synchronised: bool | Unknown
    gpu_neighbours: dict[str, tuple[str, ...]]  # RDMA function → GPUs below the same switch or root port
