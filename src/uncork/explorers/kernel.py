"""Kernel knobs."""

from uncork.host import Host
from uncork.model.facts.kernel import KernelFacts
from uncork.model.unknown import Unknown


def _integer(text: str | Unknown) -> int | Unknown:
    return text if isinstance(text, Unknown) else int(text)


def explore(host: Host) -> KernelFacts:
    """Read /proc/sys."""
    return KernelFacts(numa_balancing=_integer(host.read("/proc/sys/kernel/numa_balancing")))
