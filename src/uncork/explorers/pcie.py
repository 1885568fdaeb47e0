"""PCIe devices, links and switches."""

from uncork.host import Host
from uncork.model.facts.pcie import PcieFacts


def explore(host: Host) -> PcieFacts:
    """Read the facts of this dimension."""
    return PcieFacts()
