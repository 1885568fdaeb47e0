"""What the firmware decided: memory, topology, address windows, locks."""

import re

from uncork.explorers import reading
from uncork.explorers.gpu_windows import gpu_windows
from uncork.host import Host
from uncork.model.facts.firmware import Attribute, Channel, Dimm, FirmwareFacts
from uncork.model.unknown import Unknown
from uncork.parsers import dmesg, smbios

_DMI = ("sys_vendor", "product_name", "board_name", "bios_vendor", "bios_version", "bios_date")
_CPU = "/sys/devices/system/cpu"
_SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# Settings that matter to GPU serving; vendors name them in their own words.
_SETTINGS = re.compile(
    r"c-?states?|iommu|vt-?d|sr-?iov|aspm|re-?siz|resizable|above ?4g|numa|\bnps\b|snc|smt|hyper.?thread|power ?profile"
    r"|acs|x2apic|cppc|determinism",
    re.I,
)


def explore(host: Host) -> FirmwareFacts:
    """Read DMI, SMBIOS memory slots, CPU topology, EDAC, GPU address windows, IOMMU and lock-down state."""
    packages, groups = _topology(host)
    virtual, capable = _virtual_functions(host)
    return FirmwareFacts(
        dmi=_dmi(host),
        lockdown=reading.chosen(host, "/sys/kernel/security/lockdown"),
        secure_boot=_secure_boot(host),
        dimms=_dimms(host),
        memory_controllers=_controllers(host),
        gpu_windows=gpu_windows(host),
        sockets=packages,
        l3_groups=groups,
        cppc=_cppc(host),
        cpufreq_driver=_cpufreq(host),
        iommus=host.list("/sys/class/iommu"),
        iommu_groups=_length(host.list("/sys/kernel/iommu_groups")),
        iommu_tables=_tables(host),
        settings=_settings(host),
        pending_reboot=_pending(host),
        microcode=_microcode(host),
        virtual_functions=virtual,
        sriov_capable=capable,
        vfio=_vfio(host),
        bar_failures=_bar_failures(host),
        today=_today(host),
    )


def _today(host: Host) -> str | Unknown:
    found = host.query("today:")
    return found if isinstance(found, Unknown) else str(found)


def _bar_failures(host: Host) -> tuple[str, ...] | Unknown:
    log = reading.kernel_log(host)
    if isinstance(log, Unknown):
        return log
    return tuple(
        failure.text
        for failure in dmesg.parse(log).bar_failures
        if failure.bar in (0, 1, 2, 3) and (failure.size_bytes or 0) >= 128 << 20
    )


def _length(found: tuple[str, ...] | Unknown) -> int | Unknown:
    return found if isinstance(found, Unknown) else len(found)


def _dmi(host: Host) -> dict[str, str] | Unknown:
    found = {name: reading.text(host, f"/sys/class/dmi/id/{name}") for name in _DMI}
    known = {name: text for name, text in found.items() if not isinstance(text, Unknown)}
    if known:
        return known
    answer = host.run(("dmidecode",))
    if isinstance(answer, Unknown) or not answer.stdout:
        return next(text for text in found.values() if isinstance(text, Unknown))
    for name, part, key in (
        ("bios_vendor", "BIOS Information", "Vendor"),
        ("bios_version", "BIOS Information", "Version"),
        ("bios_date", "BIOS Information", "Release Date"),
        ("sys_vendor", "System Information", "Manufacturer"),
        ("product_name", "System Information", "Product Name"),
        ("board_name", "Base Board Information", "Product Name"),
    ):
        block = answer.stdout.partition(part)[2].partition("\nHandle")[0]
        if match := re.search(rf"^\s+{key}: *(.*)$", block, re.M):
            known[name] = match[1].strip()
    return known or Unknown("dmidecode shows no BIOS or system names")


def _secure_boot(host: Host) -> bool | Unknown:
    data = host.read_bytes(_SECURE_BOOT)
    if isinstance(data, Unknown):
        return data
    # efivarfs: four bytes of attributes before the value
    return data[4] == 1 if len(data) >= 5 else Unknown(f"{_SECURE_BOOT}: cut short")


def _dimms(host: Host) -> tuple[Dimm, ...] | Unknown:
    table = host.read_bytes("/sys/firmware/dmi/tables/DMI")
    if not isinstance(table, Unknown):
        return smbios.dimms_of_table(table)
    answer = host.run(("dmidecode",))
    if isinstance(answer, Unknown):
        return reading.settled_by(table if not table.absent else answer, "`dmidecode -t memory`")
    found = smbios.dimms_of_text(answer.stdout)
    return found or Unknown("the SMBIOS table cannot be read (dmidecode shows no memory devices)")


def _controllers(host: Host) -> tuple[Channel, ...] | Unknown:
    root = "/sys/devices/system/edac/mc"
    names = host.list(root)
    if isinstance(names, Unknown):
        return (
            names if not names.absent else Unknown("no EDAC driver is loaded: memory errors are not counted")
        )
    found = tuple(
        Channel(
            name,
            reading.integer(host, f"{root}/{name}/ce_count"),
            reading.integer(host, f"{root}/{name}/ue_count"),
        )
        for name in names
        if re.fullmatch(r"mc\d+", name)
    )
    return found or Unknown("no EDAC driver is loaded: memory errors are not counted")


def _topology(host: Host) -> tuple[int | Unknown, int | Unknown]:
    """Sockets, and groups of CPUs that share a last-level cache.

    Node cpulists would do for sockets on most machines, but sub-NUMA modes are what is asked here. Every CPU's
    package is one read each, so the first CPU of each L3 group stands for its group.
    """
    online = reading.cpus(host, f"{_CPU}/online")
    if isinstance(online, Unknown):
        return _topology_said(host)
    left, packages, groups = set(online), set(), 0
    while left:
        cpu = min(left)
        shared = reading.cpus(host, f"{_CPU}/cpu{cpu}/cache/index3/shared_cpu_list")
        package = reading.integer(host, f"{_CPU}/cpu{cpu}/topology/physical_package_id")
        if isinstance(package, Unknown):
            return _topology_said(host)
        packages.add(package)
        if isinstance(shared, Unknown):
            core = reading.cpus(host, f"{_CPU}/cpu{cpu}/topology/package_cpus_list")
            left -= {cpu} if isinstance(core, Unknown) else set(core) | {cpu}
            continue
        groups += 1
        left -= set(shared) | {cpu}
    if not packages:
        return _topology_said(host)
    return len(packages), groups or Unknown("the caches show no third level", absent=True)


def _topology_said(host: Host) -> tuple[int | Unknown, int | Unknown]:
    answer = host.run(("lscpu",))
    if isinstance(answer, Unknown):
        return answer, answer
    sockets = re.search(r"^Socket\(s\): *(\d+)", answer.stdout, re.M)
    caches = re.search(r"^L3(?: cache)?:.*\((\d+) instances?\)", answer.stdout, re.M)
    missing = Unknown("lscpu does not say")
    return int(sockets[1]) if sockets else missing, int(caches[1]) if caches else missing


def _cppc(host: Host) -> bool | Unknown:
    names = host.list(f"{_CPU}/cpu0")
    if isinstance(names, Unknown):
        return names
    return "acpi_cppc" in names


def _cpufreq(host: Host) -> str | Unknown:
    names = host.list(f"{_CPU}/cpu0")
    if isinstance(names, Unknown):
        return names
    if "cpufreq" not in names:
        return ""
    return reading.text(host, f"{_CPU}/cpu0/cpufreq/scaling_driver")


def _tables(host: Host) -> tuple[str, ...] | Unknown:
    names = host.list("/sys/firmware/acpi/tables")
    if isinstance(names, Unknown):
        return names
    return tuple(name for name in names if name in ("DMAR", "IVRS", "IORT"))


def _settings(host: Host) -> tuple[Attribute, ...] | Unknown:
    root = "/sys/class/firmware-attributes"
    drivers = host.list(root)
    if isinstance(drivers, Unknown):
        return drivers
    found = []
    for driver in drivers:
        names = host.list(f"{root}/{driver}/attributes")
        for name in () if isinstance(names, Unknown) else names:
            if _SETTINGS.search(name):
                value = reading.text(host, f"{root}/{driver}/attributes/{name}/current_value")
                if not isinstance(value, Unknown):
                    found.append(Attribute(name, value))
    return tuple(found)


def _pending(host: Host) -> bool | Unknown:
    root = "/sys/class/firmware-attributes"
    drivers = host.list(root)
    if isinstance(drivers, Unknown):
        return drivers
    texts = [reading.text(host, f"{root}/{driver}/attributes/pending_reboot") for driver in drivers]
    return any(text == "1" for text in texts if not isinstance(text, Unknown))


def _microcode(host: Host) -> tuple[str, ...] | Unknown:
    text = host.read("/proc/cpuinfo")
    if isinstance(text, Unknown):
        return text
    found = tuple(sorted(set(re.findall(r"^microcode\s*: *(\S+)", text, re.M))))
    return found or Unknown("/proc/cpuinfo shows no microcode revision", absent=True)


def _virtual_functions(host: Host) -> tuple[dict[str, int] | Unknown, tuple[str, ...] | Unknown]:
    if isinstance(names := host.list("/sys/bus/pci/devices"), Unknown):
        return names, names
    capable = tuple(path.split("/")[-2] for path in host.glob("/sys/bus/pci/devices/*/sriov_totalvfs"))
    active: dict[str, int] = {}
    for bdf in capable:
        count = reading.integer(host, f"/sys/bus/pci/devices/{bdf}/sriov_numvfs")
        if isinstance(count, Unknown):
            return count, capable
        if count:
            active[bdf] = count
    return active, capable


def _vfio(host: Host) -> tuple[str, ...] | Unknown:
    names = host.list("/sys/bus/pci/drivers/vfio-pci")
    if isinstance(names, Unknown):
        pci = host.list("/sys/bus/pci/devices")
        return () if names.absent and not isinstance(pci, Unknown) else names
    return tuple(name for name in names if re.match(r"[0-9a-f]{4,}:", name))
