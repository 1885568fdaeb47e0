"""Inference engines that run, and their Python."""

from uncork.host import Host
from uncork.model.facts.engine import EngineFacts


def explore(host: Host) -> EngineFacts:
    """Read the facts of this dimension."""
    return EngineFacts()
