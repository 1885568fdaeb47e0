"""Readings that come from a library or a system call instead of a file; each answer is JSON-shaped."""

import os
from collections.abc import Callable

from uncork.host import probes
from uncork.model.unknown import Unknown


def _statvfs(path: str) -> object | Unknown:
    """Sizes in bytes of the file system that holds `path`."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Unknown(f"{path}: {error.strerror}", absent=isinstance(error, FileNotFoundError))
    return {
        "size_bytes": found.f_frsize * found.f_blocks,
        "free_bytes": found.f_frsize * found.f_bavail,
        "inodes": found.f_files,
        "free_inodes": found.f_favail,
    }


def _nvml(_: str) -> object | Unknown:
    """Every GPU that NVML knows, with all that the checks ask (host/nvml.py)."""
    from uncork.host import nvml

    return nvml.read()


SOURCES: dict[str, Callable[[str], object | Unknown]] = {
    "statvfs": _statvfs,
    "nvml": _nvml,
    "access": probes.access,
    "writable": probes.writable,
    "lines": probes.lines,
    "entries": probes.entries,
    "numa-maps": probes.numa_maps,
    "mempolicy": probes.mempolicy,
    "clock": probes.clock,
    "weights": probes.weights,
    "today": probes.today,
}


def query(source: str) -> object | Unknown:
    """Answer `name` or `name:argument`; Unknown where the source does not exist here."""
    name, _, argument = source.partition(":")
    if name not in SOURCES:
        return Unknown(f"no such source: {name}", absent=True)
    return SOURCES[name](argument)
