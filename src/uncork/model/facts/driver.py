"""GPU driver."""

import msgspec


class DriverFacts(msgspec.Struct, frozen=True):
    """GPU driver."""
