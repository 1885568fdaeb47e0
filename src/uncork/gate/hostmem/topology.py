"""NUMA nodes, their CPUs and the size of the last-level cache, as sysfs has them and as this process may use them."""

import os
import re
from pathlib import Path

import msgspec

SYS = Path("/sys/devices/system")


class Node(msgspec.Struct, frozen=True):
    """A NUMA node with memory, and the CPUs of it that this process may run on."""

    number: int
    cpus: tuple[int, ...]
    socket: int
    free_bytes: int


def parse_list(text: str) -> tuple[int, ...]:
    """`0-2,8` as the kernel writes lists of CPUs and nodes (Documentation/admin-guide/cputopology)."""
    out: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return tuple(out)


def nodes(root: Path = SYS) -> tuple[Node, ...]:
    """The nodes that have both memory and a CPU that we may use; one node where sysfs has no NUMA."""
    allowed = os.sched_getaffinity(0)
    found = []
    for folder in sorted(root.glob("node/node[0-9]*"), key=lambda path: int(path.name[4:])):
        cpus = tuple(cpu for cpu in parse_list(_text(folder / "cpulist")) if cpu in allowed)
        free = re.search(r"MemFree:\s+(\d+) kB", _text(folder / "meminfo"))
        total = re.search(r"MemTotal:\s+(\d+) kB", _text(folder / "meminfo"))
        if cpus and total and int(total.group(1)):
            free_bytes = int(free.group(1)) * 1024 if free else 0
            found.append(Node(int(folder.name[4:]), cpus, _socket(root, cpus[0]), free_bytes))
    return tuple(found) or (Node(0, tuple(sorted(allowed)), 0, available_bytes()),)


def available_bytes() -> int:
    """MemAvailable, or the limit of our own control group where that is less."""
    match = re.search(r"MemAvailable:\s+(\d+) kB", _text(Path("/proc/meminfo")))
    available = int(match.group(1)) * 1024 if match else 1 << 30
    limit, used = (
        _text(Path("/sys/fs/cgroup/memory.max")).strip(),
        _text(Path("/sys/fs/cgroup/memory.current")).strip(),
    )
    return min(available, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else available


def last_level_cache_bytes(root: Path = SYS) -> int:
    """All last-level caches of the machine together; 32 MiB where sysfs says nothing."""
    caches: dict[str, int] = {}
    top = 0
    for index in root.glob("cpu/cpu[0-9]*/cache/index[0-9]*"):
        level = int(_text(index / "level").strip() or 0)
        size = re.match(r"(\d+)([KMG]?)", _text(index / "size"))
        if not size or level < top:
            continue
        if level > top:
            top, caches = level, {}
        scale = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[size.group(2)]
        caches[_text(index / "shared_cpu_list").strip()] = int(size.group(1)) * scale
    return sum(caches.values()) or 32 << 20


def _socket(root: Path, cpu: int) -> int:
    text = _text(root / f"cpu/cpu{cpu}/topology/physical_package_id").strip()
    return int(text) if text.isdigit() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
