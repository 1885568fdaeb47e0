"""NUMA nodes and placement."""

import msgspec

from uncork.model.unknown import Unknown


class NumaFacts(msgspec.Struct, frozen=True):
    """NUMA nodes and placement."""

    nodes: tuple[int, ...] | Unknown
