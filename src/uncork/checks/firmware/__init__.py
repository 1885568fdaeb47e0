"""UEFI/BIOS: SMBIOS names, lockdown, IOMMU mode as booted."""
