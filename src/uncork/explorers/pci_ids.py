"""What a PCI function is, by its class and ids."""

NVIDIA, AMD, INTEL, MELLANOX = 0x10DE, 0x1002, 0x8086, 0x15B3
AMD_HOST, BROADCOM_SWITCH, PLX, MICROCHIP = 0x1022, 0x1000, 0x10B5, 0x11F8

# Graphics inside AMD processors; they serve no model and stand on a bus of their own like cards do.
# Source: pci.ids, vendor 1002 (Raphael, Granite Ridge, Phoenix, Strix, Rembrandt, Cezanne, Renoir, Picasso, …).
_AMD_INTEGRATED = frozenset(
    (0x164E, 0x13C0, 0x15BF, 0x15C8, 0x1900, 0x1901, 0x150E, 0x1114, 0x1681, 0x1638, 0x1636, 0x15D8, 0x15DD)
)
# Chipsets' PCI bridges: a GPU below one shares the narrow link between chipset and processor.
# AMD Promontory (X370 to X870) switch ports and Intel PCH root ports (Skylake to Arrow Lake), from pci.ids.
_AMD_CHIPSET_PORTS = frozenset(
    (0x43B4, 0x43B7, 0x43C6, 0x43C7, 0x43E9, 0x43EA, 0x43F4, 0x43F5, 0x57A3, 0x57A4, 0x57AD)
)


def kind(class_code: int, vendor: int, device: int, bdf: str) -> str:
    """gpu, nic, nvme, nvswitch, bridge or other."""
    base = class_code >> 8
    if base == 0x0604:
        return "bridge"
    if base == 0x0680 and vendor == NVIDIA:
        return "nvswitch"
    if base in (0x0300, 0x0302, 0x0380, 0x1200):
        integrated = vendor == INTEL and bdf.split(":")[-2:-1] == ["00"]
        if vendor in (NVIDIA, AMD, INTEL) and not integrated and device not in _AMD_INTEGRATED:
            return "gpu"
        return "other"
    if class_code >> 16 == 0x02:
        return "nic"
    return "nvme" if base == 0x0108 else "other"


def is_chipset_bridge(vendor: int, device: int, bdf: str) -> bool:
    """Whether a bridge is the chipset's own: its traffic shares the chipset's link to the processor."""
    if vendor in (AMD_HOST, 0x1B21) and device in _AMD_CHIPSET_PORTS:
        return True
    # Intel's PCH root ports are functions of devices 1b, 1c and 1d on bus 0; processor ports are 01 and 06.
    return vendor == INTEL and bdf.endswith(_PCH) and bdf[-7:-5] == "00"


_PCH = tuple(f":{slot}.{function}" for slot in ("1b", "1c", "1d") for function in range(8))
