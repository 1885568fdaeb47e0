"""Kernel version."""

import msgspec


class KernelVersionFacts(msgspec.Struct, frozen=True):
    """Kernel version."""
