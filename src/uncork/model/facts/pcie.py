"""PCIe devices, links and switches."""

import msgspec

from uncork.model.unknown import Unknown


class Rebar(msgspec.Struct, frozen=True):
    """One entry of the Resizable BAR capability."""

    bar: int
    size_bytes: int
    supported_bytes: tuple[int, ...]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """What configuration space says. `None` is *this function has no such capability*, never *not read*."""

    port: str | Unknown  # endpoint, legacy, root, upstream, downstream, bridge, integrated, other
    payload_bytes: int | Unknown
    payload_supported_bytes: int | Unknown
    read_request_bytes: int | Unknown
    extended_tag: bool | Unknown
    extended_tag_supported: bool | Unknown
    relaxed_ordering: bool | Unknown
    no_snoop: bool | Unknown
    transactions_pending: bool | Unknown
    link_speed_gt_s: float | Unknown | None
    link_width: int | Unknown | None
    max_link_speed_gt_s: float | Unknown | None
    max_link_width: int | Unknown | None
    target_speed_gt_s: float | Unknown | None
    aspm: str | Unknown | None  # off, L0s, L1, L0s+L1
    slot_power_fault: bool | Unknown | None
    completion_timeout_code: int | Unknown
    completion_timeout_off: bool | Unknown
    atomic_routing: bool | Unknown
    atomic_completer_64: bool | Unknown
    atomic_requester: bool | Unknown
    atomic_egress_blocked: bool | Unknown
    ten_bit_tag_requester_supported: bool | Unknown
    ten_bit_tag_completer: bool | Unknown
    ten_bit_tag: bool | Unknown
    acs_supported: int | Unknown | None
    acs_control: int | Unknown | None
    ats: bool | Unknown | None
    dpc_triggered: bool | Unknown | None
    aer_uncorrectable: int | Unknown | None  # unmasked bits that are set
    aer_correctable: int | Unknown | None
    sriov_vfs: int | Unknown | None
    rebar: tuple[Rebar, ...] | Unknown


class Bar(msgspec.Struct, frozen=True):
    """A memory region that the device asks for."""

    number: int
    size_bytes: int
    assigned: bool


class PciDevice(msgspec.Struct, frozen=True):
    """A PCI function: a GPU, NIC, NVMe drive or switch, or a bridge above one."""

    bdf: str  # "" for a fragment of text that names no function
    kind: str  # gpu, nic, nvme, nvswitch, bridge, other
    vendor: int | Unknown
    device: int | Unknown
    class_code: int | Unknown  # 24 bits
    name: str
    driver: str | Unknown  # "" where none is bound
    path: tuple[str, ...] | Unknown  # bridges above it, the root port first, its parent last
    off_bus: bool
    numa_node: int | Unknown
    speed_gt_s: float | Unknown
    max_speed_gt_s: float | Unknown
    width: int | Unknown
    max_width: int | Unknown
    config: Config | Unknown
    bars: tuple[Bar, ...] | Unknown
    aer_fatal: int | Unknown
    aer_nonfatal: int | Unknown
    aer_correctable: int | Unknown
    iommu_type: str | Unknown  # identity, DMA, DMA-FQ, "" where it has no IOMMU group
    power_control: str | Unknown
    runtime_status: str | Unknown
    aspm_link: dict[str, bool] | Unknown  # file under link/ → enabled
    boot_display: bool | Unknown
    virtual_functions: int | Unknown  # SR-IOV functions that are enabled


class PcieFacts(msgspec.Struct, frozen=True):
    """PCIe devices, links and switches."""

    devices: tuple[PciDevice, ...] | Unknown
    source: str  # sysfs, or lspci
    tree_known: bool
    cmdline: str | Unknown
    aspm_policy: str | Unknown
    iommus: tuple[str, ...] | Unknown  # names under /sys/class/iommu
    iommu_default: str | Unknown  # identity, translated: what the boot log or the command line says
    isolation_users: tuple[str, ...]  # who relies on ACS: vfio, virtual machines, SR-IOV
    lockdown: str | Unknown
    cpu_vendor: str | Unknown
    machine: str | Unknown  # architecture
