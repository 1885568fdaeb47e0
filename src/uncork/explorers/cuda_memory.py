"""CUDA memory."""

from uncork.host import Host
from uncork.model.facts.cuda_memory import CudaMemoryFacts


def explore(host: Host) -> CudaMemoryFacts:
    """Read the facts of this dimension."""
    return CudaMemoryFacts()
