"""Container, LXC and virtual machine: what hides or limits the host."""

from uncork.host import Host
from uncork.model.facts.container import ContainerFacts


def explore(host: Host) -> ContainerFacts:
    """Read the facts of this dimension."""
    return ContainerFacts()
