"""What the firmware decided: memory, topology, address windows, locks."""

import msgspec

from uncork.model.unknown import Unknown


class Dimm(msgspec.Struct, frozen=True):
    """A memory slot of SMBIOS type 17; an empty slot has size 0."""

    locator: str
    bank: str
    size_bytes: int
    speed_mts: int | None  # rated
    configured_mts: int | None
    type: str = ""


class Channel(msgspec.Struct, frozen=True):
    """Corrected and uncorrected errors of a memory controller."""

    name: str
    corrected: int | Unknown
    uncorrected: int | Unknown


class Bar(msgspec.Struct, frozen=True):
    """A memory window of a GPU: where it starts (0: nowhere), how large it is."""

    index: int
    start: int
    size_bytes: int
    prefetchable: bool
    wide: bool  # 64-bit
    assigned: bool = True


class GpuWindows(msgspec.Struct, frozen=True):
    """A GPU's memory windows; `largest_offered_bytes` is what its resizable BAR could be, None where it has none."""

    bdf: str
    vendor: str  # 0x10de, 0x1002
    device: str
    bars: tuple[Bar, ...] | Unknown
    largest_offered_bytes: int | Unknown | None


class Attribute(msgspec.Struct, frozen=True):
    """A firmware setting that a vendor driver shows."""

    name: str
    value: str


class FirmwareFacts(msgspec.Struct, frozen=True):
    """What the firmware decided: memory, topology, address windows, locks."""

    dmi: (
        dict[str, str] | Unknown
    )  # bios_vendor, bios_version, bios_date, board_name, product_name, sys_vendor
    lockdown: str | Unknown  # none, integrity, confidentiality
    secure_boot: bool | Unknown
    dimms: tuple[Dimm, ...] | Unknown
    memory_controllers: tuple[Channel, ...] | Unknown
    gpu_windows: tuple[GpuWindows, ...] | Unknown
    sockets: int | Unknown
    l3_groups: int | Unknown  # sets of CPUs that share a last-level cache
    cppc: bool | Unknown
    cpufreq_driver: str | Unknown  # "" where no driver is loaded
    iommus: tuple[str, ...] | Unknown
    iommu_groups: int | Unknown
    iommu_tables: tuple[str, ...] | Unknown  # DMAR, IVRS, IORT
    settings: tuple[Attribute, ...] | Unknown
    pending_reboot: bool | Unknown
    microcode: tuple[str, ...] | Unknown  # distinct revisions over all CPUs
    virtual_functions: dict[str, int] | Unknown  # PCI function → active virtual functions
    sriov_capable: tuple[str, ...] | Unknown
    vfio: tuple[str, ...] | Unknown  # PCI functions that vfio-pci holds
    bar_failures: tuple[str, ...] | Unknown  # log lines: a GPU's window found no room and got none later
    today: str | Unknown  # the day of the reading, ISO
