"""Power, clocks and C-states."""

from uncork.host import Host
from uncork.model.facts.power import PowerFacts


def explore(host: Host) -> PowerFacts:
    """Read the facts of this dimension."""
    return PowerFacts()
