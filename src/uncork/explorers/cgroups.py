"""Control groups of a process, own first, then every one above, in either version."""

from uncork.explorers import reading
from uncork.host import Host
from uncork.model.facts.container import Cgroup, Counter
from uncork.model.unknown import Unknown
from uncork.parsers import cpulist, procfs

ROOT = "/sys/fs/cgroup"
# v1 writes this, rounded to pages, where v2 writes "max" (include/linux/page_counter.h).
_V1_UNLIMITED = 1 << 62


def paths(host: Host, pid: str = "self") -> dict[str, str] | Unknown:
    """Controller → path of a process's group; "" is the unified hierarchy."""
    text = host.read(f"/proc/{pid}/cgroup")
    if isinstance(text, Unknown):
        return text
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found.setdefault("" if parts[0] == "0" else controller, parts[2])
    return found


def unified(host: Host) -> bool:
    """Whether /sys/fs/cgroup is the one hierarchy of version 2 (or an attached piece of it)."""
    if host.exists(f"{ROOT}/cgroup.controllers") is True:
        return True
    pieces = ("cpu.max", "cpu.stat", "memory.max", "memory.events", "pids.max")
    return not host.live and any(not isinstance(host.read(f"{ROOT}/{name}"), Unknown) for name in pieces)


def chain(host: Host, pid: str = "self") -> tuple[Cgroup, ...] | Unknown:
    """The groups that limit a process, its own first; counters are the first and the second sample."""
    where = paths(host, pid)
    if isinstance(where, Unknown):
        # Attached files have no process, but may have the one group people copy from a container.
        return (_v2(host, "/"),) if unified(host) else where
    if unified(host):
        return tuple(_v2(host, path) for path in _upwards(where.get("", "/")))
    return tuple(_v1(host, where, level) for level in range(_depth(where)))


def _upwards(path: str) -> list[str]:
    """`/a/b` → /a/b, /a, /."""
    steps = [path]
    while path not in ("/", ""):
        path = path.rpartition("/")[0] or "/"
        steps.append(path)
    return steps


def _depth(where: dict[str, str]) -> int:
    return max(len(_upwards(where.get(name, "/"))) for name in ("cpu", "memory", "pids", "cpuset"))


def _limit(found: str | Unknown, path: str) -> int | Unknown | None:
    if isinstance(found, Unknown):
        return found
    return None if found.strip() == "max" else reading.number(found.strip(), path)


def _v2(host: Host, path: str) -> Cgroup:
    folder = ROOT + path.rstrip("/")

    def text(name: str) -> str | Unknown:
        return host.read(f"{folder}/{name}")

    stat = reading.parsed(host, f"{folder}/memory.stat", procfs.counters)
    return Cgroup(
        path=path,
        unified=True,
        cpu_quota=_quota(text("cpu.max")),
        cpu_weight=reading.integer(host, f"{folder}/cpu.weight"),
        periods=_counter(host, f"{folder}/cpu.stat", "nr_periods"),
        throttled=_counter(host, f"{folder}/cpu.stat", "nr_throttled"),
        cpu_pressure=_some(reading.parsed(host, f"{folder}/cpu.pressure", procfs.pressure), folder),
        memory_max_bytes=_limit(text("memory.max"), f"{folder}/memory.max"),
        memory_high_bytes=_limit(text("memory.high"), f"{folder}/memory.high"),
        memory_bytes=reading.integer(host, f"{folder}/memory.current"),
        memory_file_bytes=stat if isinstance(stat, Unknown) else stat.get("inactive_file", 0),
        memory_events=reading.parsed(host, f"{folder}/memory.events", procfs.counters),
        pids_max=_limit(text("pids.max"), f"{folder}/pids.max"),
        pids=reading.integer(host, f"{folder}/pids.current"),
        io_max=text("io.max"),
        cpuset=_list(text("cpuset.cpus.effective")),
        memset=_list(text("cpuset.mems.effective")),
    )


def _v1(host: Host, where: dict[str, str], level: int) -> Cgroup:
    def path(controller: str) -> str:
        steps = _upwards(where.get(controller, "/"))
        return f"{ROOT}/{controller}{steps[min(level, len(steps) - 1)]}".rstrip("/")

    def bound(controller: str, name: str) -> int | Unknown | None:
        found = _limit(host.read(f"{path(controller)}/{name}"), name)
        return None if isinstance(found, int) and (found >= _V1_UNLIMITED or found < 0) else found

    shares = reading.integer(host, f"{path('cpu')}/cpu.shares")
    stat = reading.parsed(host, f"{path('memory')}/memory.stat", procfs.counters)
    absent = Unknown("version 1 control groups have no such file", absent=True)
    return Cgroup(
        path=path("cpu").removeprefix(f"{ROOT}/cpu") or "/",
        unified=False,
        cpu_quota=_v1_quota(host, bound("cpu", "cpu.cfs_quota_us"), path("cpu")),
        # Documentation/admin-guide/cgroup-v2.rst: weight 100 is 1024 shares.
        cpu_weight=shares if isinstance(shares, Unknown) else max(1, shares * 100 // 1024),
        periods=_counter(host, f"{path('cpu')}/cpu.stat", "nr_periods"),
        throttled=_counter(host, f"{path('cpu')}/cpu.stat", "nr_throttled"),
        cpu_pressure=absent,
        memory_max_bytes=bound("memory", "memory.limit_in_bytes"),
        memory_high_bytes=None,
        memory_bytes=reading.integer(host, f"{path('memory')}/memory.usage_in_bytes"),
        memory_file_bytes=stat if isinstance(stat, Unknown) else stat.get("total_inactive_file", 0),
        memory_events=_v1_events(host, path("memory")),
        pids_max=bound("pids", "pids.max"),
        pids=reading.integer(host, f"{path('pids')}/pids.current"),
        io_max=_v1_io(host, path("blkio")),
        cpuset=_list(host.read(f"{path('cpuset')}/cpuset.effective_cpus")),
        memset=_list(host.read(f"{path('cpuset')}/cpuset.effective_mems")),
    )


def _v1_quota(host: Host, quota: int | Unknown | None, folder: str) -> float | Unknown | None:
    if quota is None or isinstance(quota, Unknown):
        return quota
    period = reading.integer(host, f"{folder}/cpu.cfs_period_us")
    if isinstance(period, Unknown):
        return period
    return quota / period if period > 0 else Unknown(f"{folder}/cpu.cfs_period_us is {period}")


def _v1_events(host: Host, folder: str) -> dict[str, int] | Unknown:
    """Version 1 counts in the words of memory.events."""
    failures = reading.integer(host, f"{folder}/memory.failcnt")
    if isinstance(failures, Unknown):
        return failures
    killed = reading.parsed(host, f"{folder}/memory.oom_control", procfs.counters)
    return {"max": failures} | (
        {} if isinstance(killed, Unknown) else {"oom_kill": killed.get("oom_kill", 0)}
    )


def _v1_io(host: Host, folder: str) -> str | Unknown:
    """Version 1 throttles in the words of io.max."""
    lines = []
    for name, word in (
        ("read_bps", "rbps"),
        ("write_bps", "wbps"),
        ("read_iops", "riops"),
        ("write_iops", "wiops"),
    ):
        text = host.read(f"{folder}/blkio.throttle.{name}_device")
        if isinstance(text, Unknown):
            return text
        lines += [
            f"{device} {word}={value}" for device, value in (x.split() for x in text.splitlines() if " " in x)
        ]
    return "\n".join(lines)


def _quota(found: str | Unknown) -> float | Unknown | None:
    if isinstance(found, Unknown):
        return found
    words = found.split()
    if words[:1] == ["max"]:
        return None
    if words and words[0].isdecimal() and (len(words) == 1 or words[1].isdecimal()):
        return int(words[0]) / int(words[1] if len(words) > 1 else "100000")
    return Unknown(f"cpu.max: not a quota: {found[:40]!r}")


def _counter(host: Host, path: str, name: str) -> Counter | Unknown:
    """A counter of a stat file in both samples."""
    found = reading.parsed(host, path, procfs.counters)
    if isinstance(found, Unknown):
        return found
    if name not in found:
        return Unknown(f"{path} has no {name}", absent=True)
    later = reading.parsed(host, path, procfs.counters, sample=2)
    return Counter(found[name], found[name] if isinstance(later, Unknown) else later.get(name, found[name]))


def _some(found: dict[str, dict[str, float]] | Unknown, folder: str) -> float | Unknown:
    if isinstance(found, Unknown):
        return found
    value = found.get("some", {}).get("avg10")
    return Unknown(f"{folder}/cpu.pressure has no avg10") if value is None else value


def _list(found: str | Unknown) -> tuple[int, ...] | Unknown:
    if isinstance(found, Unknown):
        return found
    numbers = cpulist.parse(found)
    return Unknown(f"not a list: {found[:40]!r}") if numbers is None else numbers
