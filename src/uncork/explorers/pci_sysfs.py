"""PCI functions of a machine, from sysfs."""

import re

from uncork.explorers import pci_config, pci_ids, reading
from uncork.host import Host
from uncork.model.facts.pcie import Bar, Config, PciDevice
from uncork.model.unknown import Unknown

ROOT = "/sys/bus/pci/devices"
_WANTED = ("gpu", "nic", "nvme", "nvswitch")
_MIN_MEMORY = 0x200  # IORESOURCE_MEM of include/linux/ioport.h


def devices(host: Host) -> tuple[PciDevice, ...] | Unknown:
    """The functions that checks look at and every bridge above one."""
    names = host.list(ROOT)
    if isinstance(names, Unknown):
        return names
    kinds: dict[str, tuple[str, tuple[str, ...] | Unknown]] = {}
    for name in names:
        code, vendor, device = (
            reading.integer(host, f"{ROOT}/{name}/{file}") for file in ("class", "vendor", "device")
        )
        if isinstance(code, Unknown) or isinstance(vendor, Unknown) or isinstance(device, Unknown):
            continue
        kind = pci_ids.kind(code, vendor, device, name)
        if kind in _WANTED and not (kind == "gpu" and not name.endswith(".0")):
            kinds[name] = (kind, _path(host, name))
    bridges = {step for _, path in kinds.values() if not isinstance(path, Unknown) for step in path}
    for name in sorted(bridges - kinds.keys()):
        kinds[name] = ("bridge", _path(host, name))
    return tuple(_device(host, name, *kinds[name]) for name in sorted(kinds))


def _path(host: Host, name: str) -> tuple[str, ...] | Unknown:
    where = host.link(f"{ROOT}/{name}")
    if isinstance(where, Unknown):
        return where
    steps = [
        step for step in where.split("/") if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", step)
    ]
    return tuple(step for step in steps if step != name)


def _device(host: Host, bdf: str, kind: str, path: tuple[str, ...] | Unknown) -> PciDevice:
    base = f"{ROOT}/{bdf}"
    status = reading.text(host, f"{base}/power/runtime_status")
    config, gone = _config(host, base, status)
    driver = host.link(f"{base}/driver")
    return PciDevice(
        bdf=bdf,
        kind=kind,
        vendor=reading.integer(host, f"{base}/vendor"),
        device=reading.integer(host, f"{base}/device"),
        class_code=reading.integer(host, f"{base}/class"),
        name="",
        driver=driver.rpartition("/")[2]
        if not isinstance(driver, Unknown)
        else ""
        if driver.absent
        else driver,
        path=path,
        off_bus=gone,
        numa_node=reading.integer(host, f"{base}/numa_node"),
        speed_gt_s=_speed(host, f"{base}/current_link_speed"),
        max_speed_gt_s=_speed(host, f"{base}/max_link_speed"),
        width=_width(host, f"{base}/current_link_width"),
        max_width=_width(host, f"{base}/max_link_width"),
        config=config,
        bars=_bars(host, base) if kind == "gpu" else (),
        aer_fatal=_total(host, f"{base}/aer_dev_fatal"),
        aer_nonfatal=_total(host, f"{base}/aer_dev_nonfatal"),
        aer_correctable=_total(host, f"{base}/aer_dev_correctable"),
        iommu_type=_iommu_type(host, base),
        power_control=reading.text(host, f"{base}/power/control"),
        runtime_status=status,
        aspm_link=_aspm(host, base),
        boot_display=_boot_display(host, base),
        virtual_functions=reading.integer(host, f"{base}/sriov_numvfs"),
    )


def _config(host: Host, base: str, status: str | Unknown) -> tuple[Config | Unknown, bool]:
    """Configuration space and whether the device is off the bus; a sleeping device is left asleep."""
    if not isinstance(status, Unknown) and status == "suspended":
        return Unknown("the device sleeps, and reading its configuration space would wake it"), False
    data = host.read_bytes(f"{base}/config")
    if isinstance(data, Unknown):
        return data, False
    return pci_config.parse(data), pci_config.off_the_bus(data)


def _speed(host: Host, path: str) -> float | Unknown:
    text = reading.text(host, path)
    if isinstance(text, Unknown):
        return text
    match = re.match(r"([\d.]+) GT/s", text)
    return float(match[1]) if match else Unknown(f"{path}: {text}")


def _width(host: Host, path: str) -> int | Unknown:
    value = reading.integer(host, path)
    if isinstance(value, Unknown):
        return value
    return value if 0 < value <= 32 else Unknown(f"{path}: {value}")


def _total(host: Host, path: str) -> int | Unknown:
    """The sum line of an AER file (`TOTAL_ERR_COR 0`)."""
    text = host.read(path)
    if isinstance(text, Unknown):
        return text
    match = re.search(r"^TOTAL_ERR_\w+ (\d+)", text, re.MULTILINE)
    return int(match[1]) if match else Unknown(f"{path} has no total")


def _bars(host: Host, base: str) -> tuple[Bar, ...] | Unknown:
    """Memory regions from `resource`: start, end and flags of each; a size without a start has no place."""
    text = host.read(f"{base}/resource")
    if isinstance(text, Unknown):
        return text
    bars = []
    for number, line in enumerate(text.splitlines()[:6]):
        parts = [reading.number(part, base) for part in line.split()]
        start, end, flags = parts if len(parts) == 3 else (0, 0, 0)
        if isinstance(start, Unknown) or isinstance(end, Unknown) or isinstance(flags, Unknown):
            return Unknown(f"{base}/resource cannot be read: {line[:60]!r}")
        if flags & _MIN_MEMORY and end:
            bars.append(Bar(number, end - start + 1, start != 0))
    return tuple(bars)


def _iommu_type(host: Host, base: str) -> str | Unknown:
    group = host.link(f"{base}/iommu_group")
    if isinstance(group, Unknown):
        return "" if group.absent else group
    return reading.text(host, f"/sys/kernel/iommu_groups/{group.rpartition('/')[2]}/type")


def _aspm(host: Host, base: str) -> dict[str, bool] | Unknown:
    names = host.list(f"{base}/link")
    if isinstance(names, Unknown):
        return names
    values = {name: reading.integer(host, f"{base}/link/{name}") for name in names if "aspm" in name}
    return {name: value == 1 for name, value in values.items() if not isinstance(value, Unknown)}


def _boot_display(host: Host, base: str) -> bool | Unknown:
    value = reading.integer(host, f"{base}/boot_vga")
    return value if isinstance(value, Unknown) else value == 1
