"""NVLink and NVSwitch."""

from uncork.host import Host
from uncork.model.facts.nvlink import NvlinkFacts


def explore(host: Host) -> NvlinkFacts:
    """Read the facts of this dimension."""
    return NvlinkFacts()
