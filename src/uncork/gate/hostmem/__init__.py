"""Host memory as a fabric: NUMA node to NUMA node, a process per node. Real on every machine, GPU or not.

`HostMemory()` is the fabric; `read_bandwidth()` is the figure that a bound on a CPU host uses.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uncork.gate.hostmem.fabric import HostMemory
    from uncork.model.gate import Figure


def __getattr__(name: str) -> Any:
    # A rank imports its own module of this package and nothing of the coordinator's.
    if name == "HostMemory":
        from uncork.gate.hostmem.fabric import HostMemory

        return HostMemory
    raise AttributeError(name)


def read_bandwidth() -> "Figure":
    """The host memory read bandwidth in GB/s, all CPUs of all nodes reading at once (a bound on CPU hosts uses it).

    Returns a `Figure` with every sample and how it was measured; value None where no sample could be taken.
    """
    from uncork.gate.hostmem.fabric import HostMemory
    from uncork.model.gate import Depth

    with HostMemory(depth=Depth.FULL) as host:
        return host.read_bandwidth()


__all__ = ["HostMemory", "read_bandwidth"]
