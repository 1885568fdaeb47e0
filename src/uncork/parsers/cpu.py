"""lscpu and numactl --hardware."""

import re

import msgspec

from uncork.parsers.numbers import integer

_NODE_CPUS = re.compile(r"^NUMA node(\d{1,4}) CPU\(s\)$")


class Lscpu(msgspec.Struct, frozen=True):
    """What lscpu prints; None is not printed."""

    model: str | None = None
    vendor: str | None = None
    architecture: str | None = None
    cpus: int | None = None
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    online: str | None = None
    offline: str | None = None
    numa_nodes: int | None = None
    node_cpus: dict[int, str] = {}
    hypervisor: str | None = None
    virtualization_type: str | None = None
    boost: str | None = None
    max_mhz: float | None = None
    min_mhz: float | None = None
    flags: frozenset[str] = frozenset()


class Numactl(msgspec.Struct, frozen=True):
    """Nodes of `numactl --hardware`, sizes in MB as printed."""

    nodes: tuple[int, ...] = ()
    cpus: dict[int, tuple[int, ...]] = {}
    size_mb: dict[int, int] = {}
    free_mb: dict[int, int] = {}
    distances: dict[tuple[int, int], int] = {}


def _float(text: str | None) -> float | None:
    return float(text) if text and re.fullmatch(r"\d{1,8}(?:\.\d{1,8})?", text) else None


def parse_lscpu(text: str) -> Lscpu:
    """lscpu, flat or in today's indented form, alone or inside an environment report."""
    found: dict[str, str] = {}
    nodes: dict[int, str] = {}
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        if node := _NODE_CPUS.match(key):
            nodes[int(node[1])] = value
        else:
            found.setdefault(key, value)
    return Lscpu(
        model=found.get("Model name"),
        vendor=found.get("Vendor ID"),
        architecture=found.get("Architecture"),
        cpus=integer(found.get("CPU(s)")),
        sockets=integer(found.get("Socket(s)")),
        cores_per_socket=integer(found.get("Core(s) per socket")),
        threads_per_core=integer(found.get("Thread(s) per core")),
        online=found.get("On-line CPU(s) list"),
        offline=found.get("Off-line CPU(s) list"),
        numa_nodes=integer(found.get("NUMA node(s)")),
        node_cpus=nodes,
        hypervisor=found.get("Hypervisor vendor"),
        virtualization_type=found.get("Virtualization type"),
        boost=found.get("Frequency boost"),
        max_mhz=_float(found.get("CPU max MHz")),
        min_mhz=_float(found.get("CPU min MHz")),
        flags=frozenset(found.get("Flags", "").split()),
    )


def parse_numactl(text: str) -> Numactl:
    """`numactl --hardware`; a cut table gives what it holds."""
    cpus: dict[int, tuple[int, ...]] = {}
    sizes: dict[int, int] = {}
    free: dict[int, int] = {}
    distances: dict[tuple[int, int], int] = {}
    for line in text.split("\n"):
        if found := re.match(r"^node (\d{1,4}) (cpus|size|free):\s*(.*)$", line):
            node = int(found[1])
            numbers = [int(word) for word in found[3].split() if word.isdecimal() and len(word) < 12]
            if found[2] == "cpus":
                cpus[node] = tuple(numbers)
            elif numbers:
                (sizes if found[2] == "size" else free)[node] = numbers[0]
        elif found := re.match(r"^\s*(\d{1,4}):\s+([\d ]+)$", line):
            for column, value in enumerate(found[2].split()):
                distances[int(found[1]), column] = int(value[:6])
    return Numactl(tuple(cpus), cpus, sizes, free, distances)
