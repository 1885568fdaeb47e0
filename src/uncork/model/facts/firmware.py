"""UEFI/BIOS: SMBIOS names, lockdown, IOMMU mode as booted."""

import msgspec


class FirmwareFacts(msgspec.Struct, frozen=True):
    """UEFI/BIOS: SMBIOS names, lockdown, IOMMU mode as booted."""
