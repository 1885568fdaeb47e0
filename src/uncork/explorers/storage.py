"""Storage."""

from uncork.host import Host
from uncork.model.facts.storage import StorageFacts


def explore(host: Host) -> StorageFacts:
    """Read the facts of this dimension."""
    return StorageFacts()
