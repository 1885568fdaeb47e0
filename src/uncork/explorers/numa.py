"""NUMA nodes, what memory they have left, and where serving processes and interrupts are."""

import re
import time

from uncork.explorers import reading, serving
from uncork.host import Host
from uncork.host.recording import RecordingHost
from uncork.model.facts.container import Counter
from uncork.model.facts.numa import NumaFacts, NumaNode, Residence, Vectors
from uncork.model.unknown import Unknown
from uncork.parsers import cpulist, procfs

WINDOW_S = 0.25
_NODES = "/sys/devices/system/node"
_MOST_PROCESSES = 16
_KINDS = {"0x0302": "gpu", "0x0300": "gpu", "0x1200": "gpu", "0x0380": "gpu", "0x02": "nic", "0x0108": "nvme"}
_LIBRARIES = (
    "usr/bin/numactl",
    "usr/lib/x86_64-linux-gnu/libnuma.so.1",
    "usr/lib/aarch64-linux-gnu/libnuma.so.1",
    "usr/lib64/libnuma.so.1",
    "lib/x86_64-linux-gnu/libnuma.so.1",
)


def explore(host: Host) -> NumaFacts:
    """Read the node folders of sysfs; on more than one node also interrupts and the memory of what serves."""
    outer, host = host, RecordingHost(host)
    names = host.list(_NODES)
    if isinstance(names, Unknown):
        return NumaFacts(_said(host, names), names, {}, {})
    numbers = sorted(int(name[4:]) for name in names if re.fullmatch(r"node\d+", name))
    several = len(numbers) > 1
    if several:
        for number in numbers:
            host.read(f"{_NODES}/node{number}/numastat")
        if host.live:
            time.sleep(WINDOW_S)
    pids = serving.pids(outer) if several else ()
    return NumaFacts(
        nodes=tuple(_node(host, number, several) for number in numbers) or Unknown(f"{_NODES} has no nodes"),
        devices=_devices(host) if several else (),
        residences={pid: _residence(host, pid) for pid in pids[:_MOST_PROCESSES]},
        numactl={pid: _library(host, pid) for pid in pids[:_MOST_PROCESSES]},
    )


def _node(host: Host, number: int, several: bool) -> NumaNode:
    folder = f"{_NODES}/node{number}"
    memory = reading.parsed(host, f"{folder}/meminfo", procfs.memory_bytes)
    distances = reading.text(host, f"{folder}/distance")

    def size(name: str) -> int | Unknown:
        if isinstance(memory, Unknown):
            return memory
        return memory.get(name, Unknown(f"{folder}/meminfo has no {name}"))

    return NumaNode(
        number=number,
        cpus=reading.cpus(host, f"{folder}/cpulist"),
        memory_bytes=size("MemTotal"),
        free_bytes=size("MemFree"),
        file_bytes=size("FilePages"),
        inactive_file_bytes=size("Inactive(file)"),
        distances=distances
        if isinstance(distances, Unknown)
        else tuple(int(word) for word in distances.split() if word.isdecimal()),
        missed=_missed(host, folder) if several else Unknown("one node: nothing to miss", absent=True),
    )


def _missed(host: Host, folder: str) -> Counter | Unknown:
    first = reading.parsed(host, f"{folder}/numastat", procfs.counters)
    second = reading.parsed(host, f"{folder}/numastat", procfs.counters, sample=2)
    if isinstance(first, Unknown) or "numa_miss" not in first:
        return Unknown(f"{folder}/numastat has no numa_miss")
    later = first if isinstance(second, Unknown) else second
    return Counter(first["numa_miss"], later.get("numa_miss", first["numa_miss"]))


def _said(host: Host, reason: Unknown) -> tuple[NumaNode, ...] | Unknown:
    """Nodes of attached `numactl --hardware`, else of lscpu."""
    answer = host.run(("numactl", "--hardware"))
    nodes: dict[int, NumaNode] = {}
    missing = Unknown("not among what was read")
    if not isinstance(answer, Unknown):
        text = answer.stdout
        for number, cpus in re.findall(r"^node (\d+) cpus:(.*)$", text, re.M):
            sizes = {
                word: int(value) << 20
                for word, value in re.findall(rf"^node {number} (size|free): (\d+) MB", text, re.M)
            }
            row = re.search(rf"^\s*{number}:((?:\s+\d+)+)\s*$", text, re.M)
            nodes[int(number)] = NumaNode(
                int(number),
                tuple(int(cpu) for cpu in cpus.split() if cpu.isdecimal()),
                sizes.get("size", missing),
                sizes.get("free", missing),
                missing,
                missing,
                tuple(map(int, row[1].split())) if row else missing,
                missing,
            )
    if not nodes and not isinstance(lscpu := host.run(("lscpu",)), Unknown):
        for number, cpus in re.findall(r"^NUMA node(\d+) CPU\(s\): *(\S*)", lscpu.stdout, re.M):
            rest = (missing,) * 6
            nodes[int(number)] = NumaNode(int(number), cpulist.parse(cpus) or (), *rest)
    return tuple(nodes[number] for number in sorted(nodes)) or reading.settled_by(reason, "numactl -H")


def _devices(host: Host) -> tuple[Vectors, ...] | Unknown:
    names = host.list("/sys/bus/pci/devices")
    if isinstance(names, Unknown):
        return names
    found = []
    for bdf in names:
        folder = f"/sys/bus/pci/devices/{bdf}"
        code = reading.text(host, f"{folder}/class")
        kind = (
            ""
            if isinstance(code, Unknown)
            else next((word for mark, word in _KINDS.items() if code.startswith(mark)), "")
        )
        if not kind:
            continue
        local = reading.cpus(host, f"{folder}/local_cpulist")
        vectors = host.list(f"{folder}/msi_irqs")
        numbers = [] if isinstance(vectors, Unknown) else [int(name) for name in vectors if name.isdecimal()]
        found.append(
            Vectors(
                bdf,
                kind,
                reading.integer(host, f"{folder}/numa_node"),
                local,
                () if isinstance(local, Unknown) else _remote(host, numbers, set(local)),
                len(numbers),
            )
        )
    return tuple(found)


def _remote(host: Host, interrupts: list[int], local: set[int]) -> tuple[tuple[int, tuple[int, ...]], ...]:
    found = []
    for number in interrupts:
        served = reading.cpus(host, f"/proc/irq/{number}/effective_affinity_list")
        if not isinstance(served, Unknown) and served and not set(served) & local:
            found.append((number, served))
    return tuple(found)


def _residence(host: Host, pid: int) -> Residence | Unknown:
    found = host.query(f"numa-maps:{pid}")
    if isinstance(found, Unknown):
        return found
    if not isinstance(found, dict):
        return Unknown(f"numa-maps:{pid}: no table")
    nodes = {int(number): int(size) for number, size in found["nodes"].items()}
    return Residence(pid, nodes, {name: int(size) for name, size in found["policies"].items()})


def _library(host: Host, pid: int) -> bool | Unknown:
    answers = [host.exists(f"/proc/{pid}/root/{path}") for path in _LIBRARIES]
    if any(answer is True for answer in answers):
        return True
    return next((answer for answer in answers if isinstance(answer, Unknown)), False)
