"""PCIe devices, links and switches."""

import msgspec


class PcieFacts(msgspec.Struct, frozen=True):
    """PCIe devices, links and switches."""
