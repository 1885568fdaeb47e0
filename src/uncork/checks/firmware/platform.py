"""Firmware versions, locks, power control and what it hides."""

import datetime
from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    INFO,
    NONE,
    P1,
    P2,
    REBOOT,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.hosts import guest_reason, known, seen, virtual_reason
from uncork.model.facts import Facts
from uncork.model.unknown import is_unknown

OLD_DAYS = 730


def _x86(facts: Facts) -> str:
    """Why questions about x86 firmware do not arise, or an empty text."""
    return "" if known(facts.kernel.architecture) == "x86_64" else "not an x86 processor"


@check("uefi.bios-version-age", P2, FIRMWARE, unless=guest_reason)
def bios_age(facts: Facts) -> Iterator[Verdict]:
    """The firmware is not older than two years.

    Effect: none by itself: it carries fixes for PCIe, AGESA and microcode
    Sure: medium
    Fix: read the vendor's release notes; an update resets settings, so audit again after it
    Undo: the vendor's way back
    Wrong when: the vendor has published nothing newer
    Source: Linux ABI, sysfs-class-dmi; vendor release notes
    """
    names = known(facts.firmware.dmi)
    text = " ".join(
        names.get(key, "") for key in ("board_name", "bios_vendor", "bios_version", "bios_date")
    ).strip()
    evidence = seen("/sys/class/dmi/id", text)
    day = _day(names.get("bios_date", ""))
    today = facts.firmware.today
    if day is None or is_unknown(today):
        yield passes(
            f"firmware {names.get('bios_version', '?')} of {names.get('bios_date', '?')}", evidence=evidence
        )
        return
    age = (datetime.date.fromisoformat(today) - day).days
    if age > OLD_DAYS:
        yield fails(f"firmware {names.get('bios_version', '?')} is {age // 365} years old", evidence=evidence)
    else:
        yield passes(f"firmware of {day}", evidence=evidence)


def _day(text: str) -> datetime.date | None:
    """DMI writes MM/DD/YYYY."""
    try:
        return datetime.datetime.strptime(text, "%m/%d/%Y").date()
    except ValueError:
        return None


@check("uefi.secure-boot-lockdown", INFO, NONE)
def lockdown(facts: Facts) -> Iterator[Verdict]:
    """Whether the kernel is locked down: a fact that decides which fixes exist.

    Effect: lockdown refuses writes to PCI configuration, MSRs and /dev/mem, and unsigned modules
    Sure: high
    Fix: none; never switch Secure Boot off for tuning
    Undo: nothing to undo
    Source: kernel_lockdown(7)
    """
    state = facts.firmware.lockdown
    secure = facts.firmware.secure_boot
    boot = "unknown" if is_unknown(secure) else "on" if secure else "off"
    if is_unknown(state) and state.absent:
        yield passes(f"no lockdown in this kernel; Secure Boot {boot}")
        return
    evidence = seen("/sys/kernel/security/lockdown", known(state))
    yield passes(f"lockdown {state}, Secure Boot {boot}", evidence=evidence)


@check("uefi.iommu-state", INFO, FIRMWARE)
def iommu_state(facts: Facts) -> Iterator[Verdict]:
    """Whether there is an IOMMU: a fact.

    Effect: see pcie.iommu-domain
    Sure: high
    Fix: none: on with passthrough where there are guests, vfio or more than 255 CPUs; Grace wants it translated
    Undo: nothing to undo
    Folklore: partly: "switch the IOMMU off" is right in part of the cases only
    Source: AMD Instinct MI300X system optimization; CUDA GPUDirect RDMA guide; NVIDIA Grace tuning guide
    """
    words = facts.kernel_version.parameters
    off = (
        []
        if is_unknown(words)
        else [w for w in words if w in ("iommu=off", "amd_iommu=off", "intel_iommu=off")]
    )
    if off:
        yield passes(
            "no IOMMU is on: the command line switches it off", evidence=seen("/proc/cmdline", off[0])
        )
        return
    groups = facts.firmware.iommu_groups
    tables = facts.firmware.iommu_tables
    if is_unknown(groups) and groups.absent:
        yield passes("no IOMMU support in this kernel")
        return
    names = facts.firmware.iommus
    text = f"{known(groups)} groups, tables {'?' if is_unknown(tables) else ', '.join(tables) or 'none'}"
    evidence = seen("/sys/kernel/iommu_groups, /sys/firmware/acpi/tables", text)
    on = bool(groups) or (not is_unknown(names) and bool(names))
    yield passes("an IOMMU is on" if on else "no IOMMU is on", evidence=evidence)


@check("uefi.cppc", P2, FIRMWARE, unless=virtual_reason)
def cppc(facts: Facts) -> Iterator[Verdict]:
    """The firmware lets amd_pstate work.

    Effect: a precondition of power.scaling-driver
    Sure: high
    Fix: CPPC enabled or auto in the firmware
    Undo: the former setting
    Source: Linux admin-guide/pm/amd-pstate.rst
    """
    if known(facts.kernel.vendor) != "AuthenticAMD":
        yield not_applicable("not an AMD processor")
        return
    events = facts.kernel.events
    lines = () if is_unknown(events) else events.no_cppc
    evidence = seen("/sys/devices/system/cpu/cpu0/acpi_cppc", facts.firmware.cppc)
    if lines:
        yield fails("the firmware describes no CPPC", evidence=seen("kernel log", lines[-1]))
    elif known(facts.firmware.cppc):
        yield passes("CPPC is there", evidence=evidence)
    elif "cppc" in known(facts.kernel.cpu_flags) or "hw_pstate" in facts.kernel.cpu_flags:
        yield fails("the processor has CPPC, the firmware hides it", evidence=evidence)
    else:
        yield not_applicable("a processor without CPPC")


@check("uefi.workload-profile-hides-pstates", P1, FIRMWARE, unless=(virtual_reason, _x86))
def hidden_pstates(facts: Facts) -> Iterator[Verdict]:
    """The system, not a firmware profile, sets the clock.

    Effect: a power-saving profile caps clocks, and nothing in the system can undo it
    Sure: medium
    Fix: OS control, or the maximum performance profile, in the firmware
    Undo: the former profile
    Wrong when: a virtual machine, which has no driver by nature
    Source: Linux admin-guide/pm/intel_pstate.rst; Linux admin-guide/pm/amd-pstate.rst
    """
    driver = known(facts.firmware.cpufreq_driver)
    evidence = seen("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", driver or "absent")
    if driver == "":
        yield fails("no frequency driver on bare metal: the firmware keeps the clock", evidence=evidence)
    elif driver in ("pcc-cpufreq", "cppc_cpufreq"):
        yield fails(f"{driver} leaves the clock to the firmware", evidence=evidence)
    else:
        yield passes(f"the system sets the clock ({driver})", evidence=evidence)


@check("uefi.amd-df-cstates-apbdis", P2, FIRMWARE)
def fabric_states(facts: Facts) -> Iterator[Verdict]:
    """The fabric of an EPYC keeps its clock under bursts of DMA.

    Effect: vendor advice; no figures with serving
    Sure: low
    Fix: APBDIS=1 with a fixed P-state, DF C-states auto, determinism power (AMD's list for MI300X)
    Undo: the former settings
    Folklore: partly
    Source: AMD Instinct MI300X system optimization
    """
    if reason := virtual_reason(facts):
        yield not_applicable(reason)
    elif known(facts.kernel.vendor) != "AuthenticAMD":
        yield not_applicable("not an AMD processor")
    else:
        yield unknown("not visible to the system: ask the operator or the BMC for APBDIS and DF C-states")


@check("uefi.firmware-attributes", INFO, NONE)
def attributes(facts: Facts) -> Iterator[Verdict]:
    """Firmware settings that Linux can read: a fact.

    Effect: turns a question to the operator into a reading
    Sure: high
    Fix: none automated: writes may need the firmware's password
    Undo: nothing to undo
    Source: Linux ABI, sysfs-class-firmware-attributes
    """
    settings = facts.firmware.settings
    if is_unknown(settings) and settings.absent:
        yield not_applicable("no vendor driver shows firmware settings")
        return
    text = "; ".join(f"{one.name}={one.value}" for one in known(settings))
    evidence = seen("/sys/class/firmware-attributes", text or "none of interest")
    if facts.firmware.pending_reboot is True:
        yield fails("firmware settings wait for a reboot", evidence=evidence)
    else:
        yield passes(f"{len(known(settings))} firmware settings can be read", evidence=evidence)


@check("uefi.microcode", P2, REBOOT, unless=guest_reason)
def microcode(facts: Facts) -> Iterator[Verdict]:
    """All processors run the same microcode.

    Effect: stability
    Sure: medium
    Fix: the distribution's package and a new initramfs; never load it late on a serving host
    Undo: the former package
    Source: Linux arch/x86/microcode.rst
    """
    found = facts.firmware.microcode
    events = facts.kernel.events
    if is_unknown(found):
        if not is_unknown(events) and events.microcode:
            yield passes("microcode loaded early", evidence=seen("kernel log", events.microcode[-1]))
        elif found.absent:
            yield not_applicable("this processor shows no microcode revision")
        else:
            yield unknown(found.reason)
        return
    evidence = seen("/proc/cpuinfo microcode", ", ".join(found))
    if len(found) > 1:
        yield fails(f"{len(found)} different microcode revisions", evidence=evidence)
    else:
        yield passes(f"one microcode revision ({found[0]})", evidence=evidence)


@check("uefi.sriov", INFO, FIRMWARE)
def sriov(facts: Facts) -> Iterator[Verdict]:
    """Whether virtual functions are in use: a fact that forbids touching ACS.

    Effect: none by itself
    Sure: high
    Fix: none
    Undo: nothing to undo
    Source: AMD Instinct MI300X system optimization; Linux PCI/pci-iov-howto.rst
    """
    capable = facts.firmware.sriov_capable
    if not known(capable):
        yield not_applicable("no device here offers virtual functions")
        return
    active = known(facts.firmware.virtual_functions)
    text = ", ".join(f"{bdf}: {count}" for bdf, count in active.items()) or "none active"
    says = (
        f"virtual functions active on {len(active)} devices: ACS stays"
        if active
        else "no virtual functions active"
    )
    yield passes(says, evidence=seen("/sys/bus/pci/devices/*/sriov_numvfs", text))
