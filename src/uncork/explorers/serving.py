"""Which processes serve, for explorers that look at what those processes may use."""

from uncork.explorers import engine_argv, engine_process
from uncork.host import Host
from uncork.model.unknown import Unknown


def commands(host: Host) -> dict[int, tuple[str, ...]] | Unknown:
    """The command line of every process in sight."""
    names = host.list("/proc")
    if isinstance(names, Unknown):
        return names
    return engine_process.commands(host, [int(name) for name in names if name.isdigit()])


def pids(host: Host) -> tuple[int, ...]:
    """Serving processes and their descendants; none where nothing serves or nothing can be seen."""
    every = commands(host)
    if isinstance(every, Unknown):
        return ()
    found = {pid for pid, argv in every.items() if engine_argv.kind_and_arguments(argv)}
    if not found:
        return ()
    parents = engine_process.parents(host, every)
    grown = True
    while grown:
        more = {child for child, parent in parents.items() if parent in found} - found
        grown = bool(more)
        found |= more
    return tuple(sorted(found))


def programs(host: Host) -> frozenset[str] | Unknown:
    """The base names of all programs that run."""
    every = commands(host)
    if isinstance(every, Unknown):
        return every
    return frozenset(argv[0].rpartition("/")[2].split(" ")[0].rstrip(":") for argv in every.values())
