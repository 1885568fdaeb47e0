"""NCCL and peer-to-peer."""

import msgspec


class P2pFacts(msgspec.Struct, frozen=True):
    """NCCL and peer-to-peer."""
