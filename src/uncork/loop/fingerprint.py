"""What must be equal for two benchmark runs to be compared, apart from the change under test."""

import hashlib
import urllib.parse
from collections.abc import Iterable
from typing import Any

from uncork.bench.fingerprints import NOTES, entry
from uncork.explorers import explore
from uncork.host import Host
from uncork.host.recording import RecordingHost
from uncork.knobs import KNOBS
from uncork.loop import identity
from uncork.model.facts import Facts
from uncork.model.facts.engine import Server as Engine
from uncork.model.unknown import Unknown

_FILES = {
    "kernel": "/proc/sys/kernel/osrelease",
    "boot": "/proc/sys/kernel/random/boot_id",
    "kernel command line": "/proc/cmdline",
    "nvidia driver": "/proc/driver/nvidia/version",
}
_ELSEWHERE = Unknown("the server runs on another machine, whose settings cannot be read from here")


def fingerprint(
    host: Host, endpoint: str, *, pid: int = 0, settings: Iterable[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Names and values of what must be equal, and under `notes` how the host was at the start.

    A setting is named `knob:target`, as the plan names it; those of a plan (`settings`) are read through its
    knobs. The server is the process `pid`, else the one that answers at `endpoint`.
    """
    recorded = RecordingHost(host)
    facts = explore(recorded).facts
    engine = engine_of(facts, endpoint, pid)
    found: dict[str, Any] = {"machine": _machine(recorded), "cpu": _cpu(recorded)}
    found |= identity.host_entries(facts) | identity.engine_entries(engine)
    found |= {f"{knob}:{target}": KNOBS[knob].read(target) for knob, target in settings}
    notes = identity.notes(facts) | {"boot": recorded.read(_FILES["boot"]), "load average": _load(recorded)}
    if not isinstance(engine, Unknown):
        notes |= {"server process": engine.pid, "server command": engine.command}
    entries: dict[str, Any] = {name: entry(value) for name, value in sorted(found.items())}
    return entries | {NOTES: {name: entry(value) for name, value in sorted(notes.items())}}


def engine_of(facts: Facts, endpoint: str, pid: int = 0) -> Engine | Unknown:
    """The server's process among the facts; Unknown where it is not on this machine or cannot be seen."""
    if isinstance(facts.engine, Unknown):
        return facts.engine
    servers = facts.engine.servers
    if isinstance(servers, Unknown):
        return servers
    parts = urllib.parse.urlsplit(endpoint)
    if not pid and not is_local(parts.hostname or ""):
        return _ELSEWHERE
    for one in servers:
        if one.pid == pid or (not pid and _port(one) == parts.port):
            return one
    return Unknown("no process of a known inference engine answers at this address")


def is_local(name: str) -> bool:
    """Whether an address is this machine's own loopback."""
    return name in ("localhost", "::1") or name.startswith("127.")


def host_lines(host: Host) -> dict[str, str]:
    """What a reader of the record should know about the host."""
    memory = host.read("/proc/meminfo")
    total = "" if isinstance(memory, Unknown) else memory.splitlines()[0].partition(":")[2].strip()
    lines = {name: _text(host.read(path)) for name, path in _FILES.items() if host.exists(path) is True}
    return {"cpu": _text(_cpu(host)), "memory": total, "machine": _text(_machine(host)), **lines}


def _port(engine: Engine) -> int | None:
    return None if isinstance(engine.endpoint, Unknown) else urllib.parse.urlsplit(engine.endpoint).port


def _machine(host: Host) -> str | Unknown:
    """Hashed: the record is mailed around, and the id itself is meant to stay on its machine (machine-id(5))."""
    found = host.read("/etc/machine-id")
    return found if isinstance(found, Unknown) else hashlib.sha256(found.encode()).hexdigest()[:16]


def _load(host: Host) -> str | Unknown:
    found = host.read("/proc/loadavg")
    return found if isinstance(found, Unknown) else " ".join(found.split()[:3])


def _text(value: str | Unknown) -> str:
    return str(value) if isinstance(value, Unknown) else value.strip()


def _cpu(host: Host) -> str | Unknown:
    cpuinfo = host.read("/proc/cpuinfo")
    if isinstance(cpuinfo, Unknown):
        return cpuinfo
    models = [
        line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")
    ]
    return f"{len(models)} x {models[0]}" if models else Unknown("/proc/cpuinfo names no model")
