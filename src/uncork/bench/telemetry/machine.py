"""CPU, run queue, steal, control-group throttling, NUMA misses and swapping, from /proc and /sys."""

import glob
import os
import time
from typing import Any

# Beyond these a level's figure is doubtful: chosen well above what an idle host shows, below what can be felt.
STEAL_SHARE = 0.02
RUN_QUEUE_PER_CPU = 2.0


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _pairs(text: str) -> dict[str, int]:
    """Lines `name number`."""
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if value.strip().isdecimal():
            found[name] = int(value)
    return found


class Machine:
    """Counters at begin and end, the run queue in between."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._queue: list[int] = []
        self._busy: list[float] = []
        self._last: tuple[int, int] = (0, 0)
        self._began_s = 0.0

    def begin(self) -> None:
        self._before, self._last, self._began_s = _counters(), _cpu_ticks(), time.monotonic()

    def sample(self) -> None:
        running = _pairs(_read("/proc/stat")).get("procs_running")
        if running is not None:
            self._queue.append(running - 1)  # without the one that reads
        busy, total = _cpu_ticks()
        if total > self._last[1]:
            self._busy.append((busy - self._last[0]) / (total - self._last[1]))
        self._last = busy, total

    def end(self) -> tuple[dict[str, Any], list[str]]:
        now = _counters()
        moved = {name: now[name] - self._before[name] for name in now if name in self._before}
        ticks = max(1, moved.pop("cpu_total_ticks", 1))
        steal = moved.pop("cpu_steal_ticks", 0) / ticks
        figures: dict[str, Any] = {"seconds": time.monotonic() - self._began_s, "steal_share": steal, **moved}
        if self._queue:
            figures |= {
                "run_queue_mean": sum(self._queue) / len(self._queue),
                "run_queue_max": max(self._queue),
            }
        if self._busy:
            figures |= {"cpu_busy_mean": sum(self._busy) / len(self._busy), "cpu_busy_max": max(self._busy)}
        return figures, _disturbances(figures)


def _disturbances(figures: dict[str, Any]) -> list[str]:
    said = []
    if figures["steal_share"] > STEAL_SHARE:
        said.append(f"{figures['steal_share']:.1%} of CPU time was stolen by the hypervisor")
    if figures.get("throttled_usec", 0) > 0:
        said.append(f"a control group was throttled for {figures['throttled_usec'] / 1e3:.0f} ms of CPU time")
    if figures.get("pswpin", 0) + figures.get("pswpout", 0) > 0:
        said.append(f"{figures['pswpin']} pages swapped in, {figures['pswpout']} out")
    cpus = len(os.sched_getaffinity(0))
    if figures.get("run_queue_mean", 0) > RUN_QUEUE_PER_CPU * cpus:
        said.append(f"{figures['run_queue_mean']:.0f} tasks wanted {cpus} CPUs on average")
    return said


def _cpu_ticks() -> tuple[int, int]:
    """Busy and total ticks of all CPUs (proc(5): user nice system idle iowait irq softirq steal ...)."""
    first = _read("/proc/stat").partition("\n")[0].split()[1:9]
    ticks = [int(word) for word in first if word.isdecimal()]
    total = sum(ticks)
    idle = sum(ticks[3:5])
    return total - idle, total


def _counters() -> dict[str, int]:
    first = [int(word) for word in _read("/proc/stat").partition("\n")[0].split()[1:9] if word.isdecimal()]
    found = {"cpu_total_ticks": sum(first), "cpu_steal_ticks": first[7] if len(first) > 7 else 0}
    vmstat = _pairs(_read("/proc/vmstat"))
    found |= {name: vmstat[name] for name in ("pswpin", "pswpout", "pgmajfault") if name in vmstat}
    nodes = [_pairs(_read(path)) for path in glob.glob("/sys/devices/system/node/node[0-9]*/numastat")]
    if nodes:
        found["numa_miss"] = sum(node.get("numa_miss", 0) for node in nodes)
    throttled = [_pairs(_read(path)).get("throttled_usec") for path in _cgroup_files()]
    known = [value for value in throttled if value is not None]
    return found | ({"throttled_usec": sum(known)} if known else {})


def _cgroup_files() -> list[str]:
    """cpu.stat of this process's group and its parents: the server in the same container shares them."""
    line = next((one for one in _read("/proc/self/cgroup").splitlines() if one.startswith("0::")), "")
    path, found = line.removeprefix("0::").rstrip("/"), []
    for base in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        here = path
        while here:
            found.append(f"{base}{here}/cpu.stat")
            here = here.rpartition("/")[0]
    return found
