"""NVLink and NVSwitch."""

import msgspec


class NvlinkFacts(msgspec.Struct, frozen=True):
    """NVLink and NVSwitch."""
