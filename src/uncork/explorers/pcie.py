"""PCIe devices, links and switches."""

import re

from uncork.explorers import pci_sysfs, reading
from uncork.host import Host
from uncork.model.facts.pcie import PciDevice, PcieFacts
from uncork.model.unknown import Unknown


def explore(host: Host) -> PcieFacts:
    """Read GPUs, NICs, NVMe drives, NVSwitches and the bridges above them; sysfs first, else lspci's text."""
    devices: tuple[PciDevice, ...] | Unknown = pci_sysfs.devices(host)
    source, tree = "sysfs", True
    if isinstance(devices, Unknown) and not devices.absent:
        from uncork.explorers import pci_text  # its expressions cost more than a live host's whole reading

        devices, tree = pci_text.devices(host)
        source = "lspci"
    cmdline = reading.text(host, "/proc/cmdline")
    return PcieFacts(
        devices=devices,
        source=source,
        tree_known=tree,
        cmdline=cmdline,
        aspm_policy=reading.chosen(host, "/sys/module/pcie_aspm/parameters/policy"),
        iommus=_iommus(host),
        iommu_default=_iommu_default(host, cmdline),
        isolation_users=_isolation_users(host, devices),
        lockdown=reading.chosen(host, "/sys/kernel/security/lockdown"),
        cpu_vendor=_cpu_vendor(host),
        machine=_machine(host),
    )


def _iommus(host: Host) -> tuple[str, ...] | Unknown:
    names = host.list("/sys/class/iommu")
    # A kernel without IOMMU support has no such class; that is an answer.
    return () if isinstance(names, Unknown) and names.absent else names


def _iommu_default(host: Host, cmdline: str | Unknown) -> str | Unknown:
    """identity, translated or off: the command line's off, the boot log, else what was asked for."""
    words = set() if isinstance(cmdline, Unknown) else set(cmdline.split())
    # The log names a default domain even where the IOMMU was switched off.
    if words & {"iommu=off", "amd_iommu=off", "intel_iommu=off", "iommu=soft"}:
        return "off"
    log = reading.kernel_log(host)
    found = [] if isinstance(log, Unknown) else re.findall(r"Default domain type: (\w+)", log)
    if found:
        return "identity" if found[-1] == "Passthrough" else "translated"
    if isinstance(cmdline, Unknown):
        return cmdline
    if words & {"iommu=pt", "iommu.passthrough=1"}:
        return "identity"
    return Unknown("neither the boot log nor the command line names the default IOMMU domain")


def _isolation_users(host: Host, devices: tuple[PciDevice, ...] | Unknown) -> tuple[str, ...]:
    """Who relies on ACS keeping devices apart."""
    found = []
    bound = host.list("/sys/bus/pci/drivers/vfio-pci")
    if not isinstance(bound, Unknown):
        found += [f"{name} is bound to vfio-pci" for name in bound if re.match(r"[0-9a-f]{4}:", name)]
    for device in () if isinstance(devices, Unknown) else devices:
        if not isinstance(device.driver, Unknown) and device.driver == "vfio-pci":
            found.append(f"{device.bdf} is bound to vfio-pci")
        if not isinstance(device.virtual_functions, Unknown) and device.virtual_functions > 0:
            found.append(f"{device.bdf} has {device.virtual_functions} SR-IOV functions")
    return tuple(dict.fromkeys(found))


def _cpu_vendor(host: Host) -> str | Unknown:
    text = host.read("/proc/cpuinfo")
    if not isinstance(text, Unknown) and (match := re.search(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)):
        return match[1]
    lscpu = host.run(("lscpu",)) if not host.live else Unknown("not asked")
    if not isinstance(lscpu, Unknown) and (match := re.search(r"Vendor ID:\s*(\S+)", lscpu.stdout)):
        return match[1]
    log = reading.kernel_log(host)
    if not isinstance(log, Unknown):
        if "AuthenticAMD" in log or "AMD-Vi" in log:
            return "AuthenticAMD"
        if "GenuineIntel" in log or "DMAR" in log:
            return "GenuineIntel"
    return Unknown("/proc/cpuinfo names no vendor")


def _machine(host: Host) -> str | Unknown:
    answer = host.run(("uname", "-m"))
    if isinstance(answer, Unknown):
        return answer
    match = re.search(r"x86_64|aarch64|ppc64le|riscv64|i686", answer.stdout)
    return match[0] if match else Unknown("uname names no architecture")
