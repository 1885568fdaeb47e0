"""Network and RDMA."""

from uncork.host import Host
from uncork.model.facts.network import NetworkFacts


def explore(host: Host) -> NetworkFacts:
    """Read the facts of this dimension."""
    return NetworkFacts()
