"""UEFI/BIOS: SMBIOS names, lockdown, IOMMU mode as booted."""

from uncork.host import Host
from uncork.model.facts.firmware import FirmwareFacts


def explore(host: Host) -> FirmwareFacts:
    """Read the facts of this dimension."""
    return FirmwareFacts()
