"""Kernel knobs."""

import msgspec

from uncork.model.unknown import Unknown


class KernelFacts(msgspec.Struct, frozen=True):
    """Kernel knobs."""

    numa_balancing: int | Unknown
