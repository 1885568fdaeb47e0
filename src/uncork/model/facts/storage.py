"""Storage."""

import msgspec


class StorageFacts(msgspec.Struct, frozen=True):
    """Storage."""
