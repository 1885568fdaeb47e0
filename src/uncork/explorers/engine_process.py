"""One server's processes, as /proc tells them."""

import re
from collections.abc import Iterable, Mapping, Sequence

from uncork.explorers import engine_environ
from uncork.host import Host
from uncork.model.facts.engine import Process
from uncork.model.unknown import Unknown

TICKS_PER_S = 100  # USER_HZ is 100 on every Linux architecture uncork runs on (man 7 time)
_MAX_THREADS = 64  # sampled per process: the busy ones are the oldest

# The distribution whose version is the engine's.
_DISTRIBUTION = {
    "vllm": ("vllm",),
    "sglang": ("sglang",),
    "tensorrt-llm": ("tensorrt-llm",),
    "tgi": ("text-generation-server",),
    "llama.cpp": ("llama-cpp-python", "xllamacpp"),
    "transformers": ("transformers",),
    "lmdeploy": ("lmdeploy",),
}


def commands(host: Host, pids: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """The command line of each process that has one."""
    found: dict[int, tuple[str, ...]] = {}
    for pid in sorted(pids):
        text = host.read(f"/proc/{pid}/cmdline")
        if not isinstance(text, Unknown) and (words := tuple(text.rstrip("\0").split("\0")))[0]:
            found[pid] = words
    return found


def _stat(host: Host, path: str, *, sample: int = 1) -> list[str] | Unknown:
    """Fields of a stat file from the third on (the second may hold anything, parentheses too)."""
    text = host.read(path, sample=sample)
    if isinstance(text, Unknown):
        return text
    fields = text.rpartition(")")[2].split()
    return fields if len(fields) > 38 else Unknown(f"{path} is cut short")


def parents(host: Host, pids: Iterable[int]) -> dict[int, int]:
    """The parent of each process."""
    stats = {pid: _stat(host, f"/proc/{pid}/stat") for pid in pids}
    return {pid: int(fields[1]) for pid, fields in stats.items() if not isinstance(fields, Unknown)}


def start_ticks(host: Host, pid: int) -> int | Unknown:
    """When the process started, in clock ticks since boot (stat field 22)."""
    fields = _stat(host, f"/proc/{pid}/stat")
    return fields if isinstance(fields, Unknown) else int(fields[19])


def cpu_ticks(
    host: Host, families: Mapping[int, Sequence[int]], *, sample: int
) -> dict[int, dict[str, int] | Unknown]:
    """CPU time of each thread of each process, in clock ticks."""
    found: dict[int, dict[str, int] | Unknown] = {}
    for pid in (member for family in families.values() for member in family):
        tasks = host.list(f"/proc/{pid}/task")
        if isinstance(tasks, Unknown):
            found[pid] = tasks
            continue
        ticks: dict[str, int] = {}
        for task in sorted(tasks, key=int)[:_MAX_THREADS]:
            fields = _stat(host, f"/proc/{pid}/task/{task}/stat", sample=sample)
            if not isinstance(fields, Unknown):
                ticks[task] = int(fields[11]) + int(fields[12])
        uptime = host.read("/proc/uptime", sample=sample)
        if not isinstance(uptime, Unknown):
            ticks["uptime"] = round(float(uptime.split()[0]) * TICKS_PER_S)
        found[pid] = ticks
    return found


def shares(
    first: Mapping[int, dict[str, int] | Unknown], second: Mapping[int, dict[str, int] | Unknown]
) -> dict[int, float | Unknown]:
    """Share of one core that the busiest thread of each process took between two samples."""
    found: dict[int, float | Unknown] = {}
    for pid, before in first.items():
        after = second.get(pid, Unknown("it ended between two samples"))
        if isinstance(before, Unknown) or isinstance(after, Unknown):
            found[pid] = Unknown("its threads could not be sampled twice")
            continue
        span = after.get("uptime", 0) - before.get("uptime", 0)
        spent = [after[task] - before[task] for task in before if task in after and task != "uptime"]
        found[pid] = min(1.0, max(spent) / span) if span > 0 and spent else Unknown("no time between samples")
    return found


def _role(title: str) -> str:
    low = title.lower()
    for word, role in (
        ("detok", "tokenizer"),
        ("tokeniz", "tokenizer"),
        ("enginecore", "scheduler"),
        ("schedul", "worker"),  # an sglang scheduler process is the rank itself
        ("worker", "worker"),
        ("ray::", "worker"),
        ("apiserver", "main"),
    ):
        if word in low:
            return role
    return "other"


def process(host: Host, pid: int, parent: int, main: int, shares: Mapping[int, float | Unknown]) -> Process:
    """What matters of one process of a server."""
    text = host.read(f"/proc/{pid}/status")
    status: dict[str, str] = {}
    if not isinstance(text, Unknown):
        status = {key: value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    fields = _stat(host, f"/proc/{pid}/stat")
    command = host.read(f"/proc/{pid}/cmdline")
    title = status.get("Name", "")
    if not isinstance(command, Unknown) and "::" in command:
        title = command.split("\0")[0]  # comm is cut at 15 characters
    missing = Unknown(f"/proc/{pid}/status cannot be read")
    return Process(
        pid=pid,
        parent=parent,
        title=title,
        role="main" if pid == main else _role(title),
        threads=int(status["Threads"]) if status.get("Threads", "").isdigit() else missing,
        cpus_allowed=cpu_list(status["Cpus_allowed_list"]) if "Cpus_allowed_list" in status else missing,
        swap_bytes=int(status["VmSwap"].split()[0]) * 1024 if "VmSwap" in status else missing,
        nice=fields if isinstance(fields, Unknown) else int(fields[16]),
        policy=fields if isinstance(fields, Unknown) else int(fields[38]),
        cpu_share=shares.get(pid, Unknown("not sampled")),
    )


def cpu_list(text: str) -> tuple[int, ...]:
    """The CPUs of a list such as `0-3,8`."""
    found: list[int] = []
    for part in filter(None, text.strip().split(",")):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return tuple(found)


def environ(host: Host, pid: int) -> dict[str, str] | Unknown:
    """The allowed environment variables of a process."""
    text = host.read(f"/proc/{pid}/environ")
    return text if isinstance(text, Unknown) else engine_environ.kept(text)


def limits(host: Host, pid: int) -> dict[str, int | Unknown | None]:
    """Soft limits by the kernel's names; None is unlimited."""
    text = host.read(f"/proc/{pid}/limits")
    found: dict[str, int | Unknown | None] = {}
    for name in ("Max locked memory", "Max open files"):
        if isinstance(text, Unknown):
            found[name] = text
            continue
        match = re.search(rf"^{name}\s+(\d+|unlimited)", text, re.MULTILINE)
        missing = Unknown(f"/proc/{pid}/limits has no {name.lower()}")
        found[name] = missing if not match else None if match[1] == "unlimited" else int(match[1])
    return found


def cgroup(host: Host, pid: int) -> str | Unknown:
    """The path of the unified control group."""
    text = host.read(f"/proc/{pid}/cgroup")
    if isinstance(text, Unknown):
        return text
    lines = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    unified = [path for number, _, path in lines if number == "0"] or [path for _, _, path in lines]
    return unified[0] if unified else Unknown(f"/proc/{pid}/cgroup is empty")


def unit_of(cgroup: str | Unknown) -> str | Unknown:
    """What owns the process: a container, pod or systemd service, told by its control group."""
    if isinstance(cgroup, Unknown):
        return cgroup
    if match := re.search(r"(?:docker|libpod|cri-containerd|crio)[-/]([0-9a-f]{12})", cgroup):
        return f"container {match[1]}"
    if match := re.search(r"pod([0-9a-f]{8}[-_][0-9a-f_-]+)", cgroup):
        return f"pod {match[1]}"
    if match := re.search(r"/([^/]+\.service)$", cgroup):
        return match[1] if not match[1].startswith("user@") else Unknown("a login session")
    if match := re.search(r"/lxc(?:\.payload)?[./]([^/]+)", cgroup):
        return f"LXC container {match[1]}"
    return Unknown("no service, container or pod is seen: it was started by hand or by a script")


def site_packages(host: Host, pid: int, argv: Sequence[str]) -> tuple[str, ...]:
    """Where this process's Python would import from, inside its own root."""
    program = argv[0] if argv[0].startswith("/") else ""
    exe = host.link(f"/proc/{pid}/exe")
    places = [program, "" if isinstance(exe, Unknown) else exe]
    prefixes = [place.rpartition("/bin/")[0] for place in places if "/bin/" in place]
    found = [
        path[: path.find("/site-packages/") + 14] for path in _mapped(host, pid) if "/site-packages/" in path
    ]
    found = [f"/proc/{pid}/root{place}" for place in dict.fromkeys(found)]
    for prefix in dict.fromkeys(prefixes):
        found += host.glob(f"/proc/{pid}/root{prefix}/lib/python3*/site-packages")
    for common in ("/usr/local/lib/python3*/dist-packages", "/usr/lib/python3/dist-packages"):
        if not found:
            found += host.glob(f"/proc/{pid}/root{common}")
    return tuple(dict.fromkeys(found))


def packages(host: Host, pid: int, argv: Sequence[str]) -> dict[str, str] | Unknown:
    """Distributions that the process's Python would import, with versions."""
    found: dict[str, str] = {}
    places = site_packages(host, pid, argv)
    for place in reversed(places):
        names = host.list(place)
        if not isinstance(names, Unknown):
            found |= engine_environ.packages_of(names)
    return found or Unknown("the packages of its Python were not found")


def version(kind: str, packages: dict[str, str] | Unknown) -> str | Unknown:
    """The engine's version."""
    if isinstance(packages, Unknown):
        return packages
    for name in _DISTRIBUTION.get(kind, ()):
        if name in packages:
            return packages[name]
    return Unknown("the engine's version was not found beside its program")


def _mapped(host: Host, pid: int) -> tuple[str, ...]:
    """Paths of shared objects a process maps; none where it may not be looked into."""
    text = host.read(f"/proc/{pid}/maps")
    if isinstance(text, Unknown):
        return ()
    paths = (line[line.find("/") :] for line in text.splitlines() if "/" in line)
    return tuple(dict.fromkeys(path for path in paths if ".so" in path))


def libraries(host: Host, pids: Iterable[int]) -> tuple[str, ...] | Unknown:
    """Paths of shared objects mapped by the processes."""
    found = dict.fromkeys(path for pid in pids for path in _mapped(host, pid))
    return tuple(found) if found else Unknown("what its processes map cannot be read")
