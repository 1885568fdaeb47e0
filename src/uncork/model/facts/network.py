"""Network and RDMA."""

import msgspec


class NetworkFacts(msgspec.Struct, frozen=True):
    """Network and RDMA."""
