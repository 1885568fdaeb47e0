"""CUDA memory."""

import msgspec


class CudaMemoryFacts(msgspec.Struct, frozen=True):
    """CUDA memory."""
