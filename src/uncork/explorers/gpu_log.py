"""What the kernel log says about GPUs and their links: lines by kind, Xids by number."""

import re

from uncork.model.facts.driver import Xid
from uncork.parsers import pci_address

KEPT = 40  # lines of one kind: a fault repeats itself by the thousand

# Kind → what such a line holds. The words are those of NVRM, the AMD and Intel IOMMU drivers, the PCI core,
# the AER, DPC and hotplug port drivers and the thermal driver.
_KINDS: dict[str, str] = {
    "xid": r"NVRM: Xid \(",
    "sxid": r"SXid \(PCI",
    "off-bus": r"fallen off the bus|GPU is lost|NVRM: The NVIDIA GPU \S+$",
    "nouveau": r"already bound to nouveau|NVRM: .*nouveau",
    "needs-open": r"requires use of the NVIDIA open kernel modules",
    "probe-failed": r"NVIDIA probe routine failed|RmInitAdapter failed|amdgpu: Fatal error during GPU init",
    "api-mismatch": r"API mismatch: the client|kernel module has the version",
    "iommu-fault": r"IO_PAGE_FAULT|DMAR: \[DMA |DMAR:.*fault addr|arm-smmu.*[Ee]vent 0x10",
    "iommu-domain": r"iommu: Default domain type|Default domain type:",
    "bar": r"BAR \d+.*(?:can't assign; no space|no space for|failed to assign|can ?not be assigned)"
    r"|BAR1? is 0M",
    "dpc": r"DPC: containment event|pcieport.*DPC:.*unmasked",
    "link-down": r"pciehp: Slot\(\S+\): (?:Link Down|Card not present)|Surprise Down|link down",
    "aer-uncorrected": r"PCIe Bus Error: severity=Uncorrect|AER: Uncorrect|AER: Multiple Uncorrect",
    "aer-corrected": r"PCIe Bus Error: severity=Correct|AER: Correct|AER: Multiple Correct",
    "apei": r"Hardware error from APEI|GHES: ",
    "osc": r"_OSC: platform does not support|_OSC: OS now controls",
    "power-cable": r"power cables?|PCIe power connector|insufficient power|Slot power limit exceeded",
    "throttled": r"temperature (?:is )?above threshold|[Cc]pu clock (?:is )?throttled",
    "tags": r"[Ee]xtended tags .*(?:disabl|quirk)|disabling Extended Tags",
    "ordering": r"Relaxed Ordering.*(?:disabl|quirk)",
    "acs": r"disable_acs_redir|ACS redirect",
    "module": r"NVRM: loading NVIDIA",
    "gsp": r"GSP",
    "guest": r"Hypervisor detected:|DMI: (?:QEMU|Amazon EC2|Microsoft Corporation Virtual|Google|VMware)",
    "aspm": r"ASPM.*(?:disabl|control)|FADT declares.*ASPM",
}
_ANY = re.compile("|".join(f"(?P<k{at}>{pattern})" for at, pattern in enumerate(_KINDS.values())))
# One of these stands in every line that `_ANY` finds; looking for them first spares it most of a log.
_WORDS = (
    *(
        "NVRM",
        "SXid",
        "off the bus",
        "GPU is lost",
        "NVIDIA",
        "RmInit",
        "amdgpu: Fatal",
        "API mismatch",
        "kernel module",
    ),
    *(
        "PAGE_FAULT",
        "DMAR",
        "smmu",
        "Default domain",
        "BAR",
        "DPC",
        "pciehp",
        "Surprise",
        "ink down",
        "PCIe Bus Error",
    ),
    *(
        "AER: ",
        "APEI",
        "GHES",
        "_OSC",
        "ower",
        "throttled",
        "temperature",
        "ags",
        "Ordering",
        "acs_redir",
        "ACS redirect",
    ),
    *("GSP", "ASPM", "Hypervisor detected", "DMI: "),
)
_XID = re.compile(r"S?Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_NAMES = list(_KINDS)


def lines_by_kind(text: str) -> dict[str, tuple[str, ...]]:
    """Lines of each kind, at most `KEPT` each; a message of several lines is joined to the one that names it."""
    found: dict[str, list[str]] = {}
    words = [word for word in _WORDS if word in text]
    lines = text.splitlines() if words else []
    for at, line in enumerate(lines):
        match = _ANY.search(line) if any(word in line for word in words) else None
        if match and match.lastgroup:
            kind = _NAMES[int(match.lastgroup[1:])]
            if kind == "off-bus" and line.rstrip()[-1:].isdigit():
                # "The NVIDIA GPU <address>" goes on for two lines, which may lack a time stamp.
                line = " ".join(part.strip() for part in lines[at : at + 3])
                if "fallen off" not in line:
                    continue
            elif kind == "off-bus" and "installed in this system" in lines[at - 1]:
                continue
            kept = found.setdefault(kind, [])
            if len(kept) < KEPT:
                kept.append(line.strip())
    if "bar" in found:
        found["bar"] = [line for line in found["bar"] if not _placed_later(line, text)]
    return {kind: tuple(kept) for kind, kept in found.items() if kept}


_WINDOW = re.compile(r"([0-9a-f:.]{7,17}): (BAR \d+)\b")


def _placed_later(line: str, text: str) -> bool:
    """Whether the kernel found a place for the same window at a later try."""
    where = _WINDOW.search(line)
    if not where:
        return False
    later = text[text.find(line) + len(line) :]
    return any(
        "assigned" in other and "can't" not in other and "failed" not in other and where[0] in other
        for other in later.splitlines()
    )


def xids(found: dict[str, tuple[str, ...]]) -> tuple[Xid, ...]:
    """The Xids and SXids among the lines."""
    events = []
    for line in found.get("xid", ()) + found.get("sxid", ()):
        if match := _XID.search(line):
            events.append(Xid(int(match[2]), pci_address.full(match[1]), line, "SXid" in line))
    return tuple(events)


_ADDRESS = re.compile(r"(?<![0-9a-fA-F:])(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")


def addresses(line: str) -> tuple[str, ...]:
    """Every bus address a line names."""
    return tuple(dict.fromkeys(pci_address.full(match[0]) for match in _ADDRESS.finditer(line)))
