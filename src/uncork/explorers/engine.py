"""Inference engines that run, and their Python."""

import time
from collections.abc import Mapping

from uncork.explorers import engine_argv, engine_endpoint, engine_process, reading
from uncork.host import Host
from uncork.model.facts.engine import EngineFacts, Launcher, Process, Server
from uncork.model.unknown import Unknown

WINDOW_S = 0.25  # between the two samples of a thread's CPU time; only where a server runs
_MAX_MAPS = 4  # processes whose mapped libraries are read: the ranks of one server map the same ones
_NOT_TOLD = Unknown("no command line, unit file or log of an engine was given")


def explore(host: Host) -> EngineFacts:
    """Find servers by their command lines, and what each was started with."""
    attached, environ, signs, from_start = _attached(host)
    names = host.list("/proc")
    if isinstance(names, Unknown):
        return EngineFacts(
            servers=attached or _NOT_TOLD,
            others=names,
            environ=environ,
            signs=signs,
            log_from_start=from_start,
        )
    commands = engine_process.commands(host, [int(name) for name in names if name.isdigit()])
    mains = {pid: found for pid, argv in commands.items() if (found := engine_argv.kind_and_arguments(argv))}
    parents = engine_process.parents(host, commands) if mains else {}
    roots = [pid for pid in mains if not _inside(pid, mains, parents)]
    families = {pid: _family(pid, parents) for pid in roots}
    if len(roots) == 1:
        # Ray starts ranks as children of its own daemon; with one server in sight they are its own.
        families[roots[0]] += tuple(pid for pid, argv in commands.items() if argv[0].startswith("ray::"))
    first = engine_process.cpu_ticks(host, families, sample=1) if roots else {}
    if roots and host.live:
        time.sleep(WINDOW_S)
    second = engine_process.cpu_ticks(host, families, sample=2) if roots else {}
    shares = engine_process.shares(first, second)
    servers = tuple(
        _server(host, pid, mains[pid], commands[pid], families[pid], parents, shares) for pid in roots
    )
    return EngineFacts(
        servers=servers + attached,
        others=_others(commands),
        environ=environ,
        signs=signs,
        log_from_start=from_start,
    )


_KINDS = ("engine-command", "engine-log", "application-log", "collect-env", "environment", "packages")


def _attached(
    host: Host,
) -> tuple[tuple[Server, ...], dict[str, str] | Unknown, dict[str, tuple[str, ...]] | Unknown, bool]:
    """What attached texts tell; the parsers are not even loaded where there are none."""
    if not any(reading.attached(host, kind) for kind in _KINDS):
        return (), Unknown("no environment was given"), Unknown("the engine's log was not given"), False
    from uncork.explorers import engine_attached

    return engine_attached.read(host)


def _inside(pid: int, mains: Mapping[int, object], parents: Mapping[int, int]) -> bool:
    """Whether an ancestor is a server too: ranks forked without exec carry their parent's command line."""
    seen = set()
    while (pid := parents.get(pid, 0)) > 1 and pid not in seen:
        seen.add(pid)
        if pid in mains:
            return True
    return False


def _family(pid: int, parents: Mapping[int, int]) -> tuple[int, ...]:
    """The process and its descendants, itself first."""
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member and child not in family]
    return tuple(family)


def _from_file(host: Host, pid: int, kind: str, flags: dict[str, str]) -> dict[str, str]:
    """The flags with those of the YAML file that `--config` names, which the command line outweighs."""
    path = flags.get("config", "")
    if not path.startswith("/"):
        return flags
    text = host.read(f"/proc/{pid}/root{path}")
    if isinstance(text, Unknown):
        return flags
    found: dict[str, str] = {}
    for line in text.splitlines()[:1000]:
        name, colon, value = line.partition(":")
        if colon and name and not name.startswith(("#", " ", "-")):
            value = value.split(" #")[0].strip().strip("\"'")
            found |= engine_argv.parse_flags(kind, (f"--{name.strip()}={value or 'true'}",))[0]
    return {name: value for name, value in found.items() if value.lower() not in ("false", "null")} | flags


def _server(
    host: Host,
    pid: int,
    kind_and_words: tuple[str, tuple[str, ...]],
    argv: tuple[str, ...],
    family: tuple[int, ...],
    parents: Mapping[int, int],
    shares: Mapping[int, float | Unknown],
) -> Server:
    kind, words = kind_and_words
    flags, loose = engine_argv.parse_flags(kind, words)
    flags = _from_file(host, pid, kind, flags)
    environ = engine_process.environ(host, pid)
    model = engine_argv.model_of(kind, flags, loose)
    packages = engine_process.packages(host, pid, argv)
    limits = engine_process.limits(host, pid)
    processes: tuple[Process, ...] = tuple(
        engine_process.process(host, member, parents.get(member, 0), pid, shares) for member in family
    )
    cgroup = engine_process.cgroup(host, pid)
    return Server(
        kind=kind,
        pid=pid,
        start_ticks=engine_process.start_ticks(host, pid),
        endpoint=engine_endpoint.endpoint(
            host, pid, kind, flags, {} if isinstance(environ, Unknown) else environ
        ),
        model=model if model is not None else Unknown("the command line names no model"),
        flags=flags,
        environ=environ,
        version=engine_process.version(kind, packages),
        packages=packages,
        command=engine_argv.redact(argv),
        processes=processes,
        libraries=engine_process.libraries(host, family[:_MAX_MAPS]),
        cgroup=cgroup,
        unit=engine_process.unit_of(cgroup),
        oom_score_adj=reading.integer(host, f"/proc/{pid}/oom_score_adj"),
        memlock_bytes=limits["Max locked memory"],
        nofile=limits["Max open files"],
    )


_OTHERS = {
    "nvidia-cuda-mps-control": "mps",
    "nvidia-cuda-mps-server": "mps",
    "nv-hostengine": "monitor",
    "dcgm-exporter": "monitor",
    "nvtop": "monitor",
    "nvitop": "monitor",
    "gpustat": "monitor",
    "nvidia-persistenced": "persistenced",
    "nv-fabricmanager": "fabric-manager",
    "nvidia-imex": "imex",
    "Xorg": "display",
    "Xwayland": "display",
    "gnome-shell": "display",
    "nsys": "profiler",
    "ncu": "profiler",
    "compute-sanitizer": "profiler",
    "cuda-gdb": "profiler",
}


def _others(commands: Mapping[int, tuple[str, ...]]) -> tuple[Launcher, ...]:
    found = []
    for pid, argv in sorted(commands.items()):
        name = argv[0].rpartition("/")[2].split(" ")[0].rstrip(":")
        kind = _OTHERS.get(name)
        if name == "nvidia-smi" and _loops(argv):
            kind = "monitor"
        if kind:
            found.append(Launcher(kind, pid, engine_argv.redact(argv)))
    return tuple(found)


def _loops(argv: tuple[str, ...]) -> bool:
    return any(word in ("dmon", "pmon", "daemon") or word.startswith(("-l", "--loop")) for word in argv[1:])
