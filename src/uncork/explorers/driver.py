"""GPU driver."""

from uncork.host import Host
from uncork.model.facts.driver import DriverFacts


def explore(host: Host) -> DriverFacts:
    """Read the facts of this dimension."""
    return DriverFacts()
