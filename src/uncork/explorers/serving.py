"""Which processes serve, for explorers that look at what those processes may use."""

import msgspec

from uncork.explorers import engine_argv, engine_process, reading
from uncork.host import Host
from uncork.model.unknown import Unknown


class Seen(msgspec.Struct, frozen=True):
    """The command line of every process in sight, and which of them serve (with their descendants)."""

    commands: dict[int, tuple[str, ...]] | Unknown
    pids: tuple[int, ...] = ()


def _seen(host: Host) -> Seen:
    """Several explorers ask, and a large host has thousands of processes: looked at once for one recording."""
    return reading.shared(host, "serving", _look)


def _look(host: Host) -> Seen:
    names = host.list("/proc")
    if isinstance(names, Unknown):
        return Seen(names)
    every = engine_process.commands(host, [int(name) for name in names if name.isdigit()])
    found = {pid for pid, argv in every.items() if engine_argv.kind_and_arguments(argv)}
    parents = engine_process.parents(host, every) if found else {}
    grown = bool(found)
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return Seen(every, tuple(sorted(found)))


def commands(host: Host) -> dict[int, tuple[str, ...]] | Unknown:
    """The command line of every process in sight."""
    return _seen(host).commands


def pids(host: Host) -> tuple[int, ...]:
    """Serving processes and their descendants; none where nothing serves or nothing can be seen."""
    return _seen(host).pids


def programs(host: Host) -> frozenset[str] | Unknown:
    """The base names of all programs that run."""
    every = _seen(host).commands
    if isinstance(every, Unknown):
        return every
    return frozenset(argv[0].rpartition("/")[2].split(" ")[0].rstrip(":") for argv in every.values())
