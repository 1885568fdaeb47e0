"""Power, clocks and C-states."""

import msgspec


class PowerFacts(msgspec.Struct, frozen=True):
    """Power, clocks and C-states."""
