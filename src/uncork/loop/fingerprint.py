"""What must be equal for two benchmark runs to be compared, apart from the change under test."""

import hashlib
from collections.abc import Iterable

from uncork.host import Host
from uncork.knobs import KNOBS
from uncork.loop.server import Server
from uncork.model.unknown import Unknown

_FILES = {
    "kernel": "/proc/sys/kernel/osrelease",
    "boot": "/proc/sys/kernel/random/boot_id",
    "kernel command line": "/proc/cmdline",
    "nvidia driver": "/proc/driver/nvidia/version",
}


def fingerprint(host: Host, server: Server, settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Names and values; a setting is named `knob:target`, as the plan names it."""
    found = {name: _text(host.read(path)) for name, path in _FILES.items()}
    found["cpu"] = _cpu(host)
    found |= {"server": server.kind, "model": server.model}
    return found | {f"{knob}:{target}": _text(KNOBS[knob].read(target)) for knob, target in settings}


def host_lines(host: Host) -> dict[str, str]:
    """What a reader of the record should know about the host."""
    memory = host.read("/proc/meminfo")
    total = "" if isinstance(memory, Unknown) else memory.splitlines()[0].partition(":")[2].strip()
    lines = {name: _text(host.read(path)) for name, path in _FILES.items() if host.exists(path) is True}
    identity = host.read("/etc/machine-id")
    # Hashed: the record is mailed around, and the id itself is meant to stay on its machine (machine-id(5)).
    machine = (
        str(identity) if isinstance(identity, Unknown) else hashlib.sha256(identity.encode()).hexdigest()[:16]
    )
    return {"cpu": _cpu(host), "memory": total, "machine": machine, **lines}


def _text(value: str | Unknown) -> str:
    return str(value) if isinstance(value, Unknown) else value.strip()


def _cpu(host: Host) -> str:
    cpuinfo = host.read("/proc/cpuinfo")
    if isinstance(cpuinfo, Unknown):
        return str(cpuinfo)
    models = [
        line.partition(":")[2].strip() for line in cpuinfo.splitlines() if line.startswith("model name")
    ]
    return f"{len(models)} x {models[0]}" if models else "unknown"
