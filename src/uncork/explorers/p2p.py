"""NCCL and peer-to-peer."""

from uncork.host import Host
from uncork.model.facts.p2p import P2pFacts


def explore(host: Host) -> P2pFacts:
    """Read the facts of this dimension."""
    return P2pFacts()
