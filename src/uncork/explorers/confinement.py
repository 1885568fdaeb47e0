"""What a process may use: its limits, capabilities, masks and control groups."""

import re
from collections.abc import Callable
from typing import TypeVar

from uncork.explorers import cgroups, engine_process, layers, reading
from uncork.host import Host
from uncork.model.facts.container import Confined, Counter
from uncork.model.unknown import Unknown
from uncork.parsers import cpulist, procfs

Value = TypeVar("Value")

# A server of many ranks: the first ones tell what the others would.
_MOST = 16


def prime(host: Host, pids: tuple[int, ...]) -> None:
    """Take the first sample of every counter that `confined` reads twice."""
    for name in [str(pid) for pid in pids[:_MOST]] or ["self"]:
        cgroups.chain(host, name)
        host.read(f"/proc/{name}/schedstat")


def confined(host: Host, pids: tuple[int, ...]) -> tuple[Confined, ...]:
    """Each of these processes, or this one where there is none."""
    if not pids:
        return (_one(host, 0),)
    return tuple(_one(host, pid) for pid in pids[:_MOST])


def _one(host: Host, pid: int) -> Confined:
    folder = f"/proc/{pid or 'self'}"
    status = reading.parsed(host, f"{folder}/status", procfs.keyed)
    where = cgroups.paths(host, str(pid or "self"))
    space = _space(host, f"{folder}/root/dev/shm" if pid else "/dev/shm")
    run, wait = _schedstat(host, folder)
    return Confined(
        pid=pid,
        start_ticks=engine_process.start_ticks(host, pid) if pid else Unknown("not a serving process"),
        name="this shell" if not pid else _field(status, "Name", folder, str),
        capabilities=_field(status, "CapEff", folder, lambda text: int(text, 16)),
        seccomp=_field(status, "Seccomp", folder, int),
        limits=reading.parsed(host, f"{folder}/limits", procfs.limits),
        open_files=_count(host, f"entries:{folder}/fd"),
        cpus_allowed=_field(status, "Cpus_allowed_list", folder, lambda text: cpulist.parse(text) or ()),
        memory_nodes_allowed=_field(
            status, "Mems_allowed_list", folder, lambda text: cpulist.parse(text) or ()
        ),
        swap_bytes=_field(status, "VmSwap", folder, lambda text: procfs.kilobytes(text) or 0),
        map_count=_count(host, f"lines:{folder}/maps"),
        wait_ns=wait,
        run_ns=run,
        cgroups=reading.settled_by(
            cgroups.chain(host, str(pid or "self")), "cpu.max, cpu.stat, memory.max and pids.max of the group"
        ),
        cgroup_path=where if isinstance(where, Unknown) else where.get("") or next(iter(where.values()), "/"),
        shm_size_bytes=space[0],
        shm_free_bytes=space[1],
        containerised=_containerised(host, pid),
    )


def _field(
    status: dict[str, str] | Unknown, name: str, folder: str, convert: Callable[[str], Value]
) -> Value | Unknown:
    if isinstance(status, Unknown):
        return status
    if name not in status:
        return Unknown(f"{folder}/status has no {name}", absent=True)
    try:
        return convert(status[name])
    except ValueError:
        return Unknown(f"{folder}/status: {name} is {status[name][:40]!r}")


def _count(host: Host, source: str) -> int | Unknown:
    found = host.query(source)
    if isinstance(found, Unknown):
        return found
    return found if isinstance(found, int) else Unknown(f"{source}: not a number")


def _space(host: Host, path: str) -> tuple[int | Unknown, int | Unknown]:
    found = host.query(f"statvfs:{path}")
    if isinstance(found, Unknown):
        missing = reading.settled_by(found, "`df -h /dev/shm` inside the container")
        return missing, missing
    if not isinstance(found, dict):
        return (missing := Unknown(f"{path}: no sizes")), missing
    return int(found["size_bytes"]), int(found["free_bytes"])


def _schedstat(host: Host, folder: str) -> tuple[Counter | Unknown, Counter | Unknown]:
    texts = [host.read(f"{folder}/schedstat", sample=sample) for sample in (1, 2)]
    fields = [re.findall(r"\d+", text)[:2] for text in texts if not isinstance(text, Unknown)]
    if len(fields) != 2 or any(len(pair) != 2 for pair in fields):
        missing = Unknown(f"{folder}/schedstat cannot be read")
        return missing, missing
    (run, wait), (run_later, wait_later) = fields
    return Counter(int(run), int(run_later)), Counter(int(wait), int(wait_later))


def _containerised(host: Host, pid: int) -> bool | Unknown:
    """Whether a process lives in other pid, ipc or cgroup namespaces than the machine's first ones.

    Namespaces of type user, uts and time are used by sandboxes of ordinary programs too.
    """
    inodes = layers.namespaces(host, str(pid or "self"))
    if isinstance(inodes, Unknown):
        return inodes
    return bool({"pid", "ipc", "cgroup"} & set(layers.foreign(inodes)))
