"""lscpu."""

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
