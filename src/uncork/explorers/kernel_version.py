"""Kernel version."""

from uncork.host import Host
from uncork.model.facts.kernel_version import KernelVersionFacts


def explore(host: Host) -> KernelVersionFacts:
    """Read the facts of this dimension."""
    return KernelVersionFacts()
