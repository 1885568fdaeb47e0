"""Memory of GPUs and pinned memory of the host, beside what the driver and the engines tell."""

import msgspec

from uncork.model.unknown import Unknown


class CudaMemoryFacts(msgspec.Struct, frozen=True):
    """Memory that servers pin or cache on."""

    available_bytes: int | Unknown  # MemAvailable
    node_free_bytes: dict[int, int] | Unknown
    cache_mounts: dict[str, str]  # folder that a server's environment names → file system type
    kernel_release: str | Unknown
