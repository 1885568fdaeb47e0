"""lspci, from a bare list to -vvvxxxx, as root or not, whole or a few lines of it."""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec

from uncork.parsers.lspci_device import Bar as Bar
from uncork.parsers.lspci_device import Device as Device
from uncork.parsers.lspci_device import Link as Link
from uncork.parsers.lspci_device import Rebar as Rebar

HEADER = re.compile(
    r"^\s{0,4}(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<slot>[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?:\s+(?P<rest>\S.*))?$"
)
_CLASS = re.compile(r"^(?P<class>[^\[:]*?)\s*(?:\[(?P<code>[0-9a-fA-F]{4})\])?: (?P<name>.*)$")
_NUMERIC = re.compile(r"^(?P<code>[0-9a-fA-F]{4}): (?P<vendor>[0-9a-fA-F]{4}):(?P<device>[0-9a-fA-F]{4})")
_IDS = re.compile(r"\[(?P<vendor>[0-9a-fA-F]{4}):(?P<device>[0-9a-fA-F]{4})\]")
_REVISION = re.compile(r" \(rev (\w+)\)| \(prog-if .*?\)\s*$")
_SPEED = re.compile(r"Speed ([\d.]+)GT/s")
_WIDTH = re.compile(r"Width x(\d+)")
_FLAG = re.compile(r"(\w+)([+-])")
_HEX = re.compile(r"^[0-9a-fA-F]{2,3}:((?: [0-9a-fA-F]{2}){1,16})\s*$")
_SIZE = re.compile(r"\[size=(\d+)([KMGTP]?)\]")
_REGION = re.compile(
    r"^(?:Region (\d): )?(?:\[virtual\] |Expansion )?Memory at (\S+) \((32|64)-bit, (non-)?prefetchable\)"
)
_BAR_SIZE = re.compile(r"BAR (\d): current size: (\d+)([KMGTP]?)B(?:, supported: (.*))?")
_ONE_SIZE = re.compile(r"(\d+)([KMGTP]?)B")
_BUS = re.compile(r"primary=([0-9a-f]+), secondary=([0-9a-f]+), subordinate=([0-9a-f]+)")
_PORT = re.compile(r"(?:Express(?: \(v\d\))?|Express) (.*?)(?: \(Slot[+-]\))?(?:, .*)?$")
_SETPCI_ACS = re.compile(r"^\s*ACSCtl:?\s+(?:0x)?([0-9a-fA-F]{4})\b")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
# PCI Express Base Specification, ACS Control Register, from bit 0 up; the names are lspci's.
_ACS_BITS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
# The beginning of a vendor's name in pci.ids → its number; of two that match, the later row.
_VENDORS = (
    ("NVIDIA", "10de"),
    ("Advanced Micro Devices, Inc. [AMD]", "1022"),
    ("Advanced Micro Devices, Inc. [AMD/ATI]", "1002"),
    ("Intel Corporation", "8086"),
    ("Mellanox", "15b3"),
    ("Broadcom / LSI", "1000"),
    ("PLX Technology", "10b5"),
    ("Microsemi", "11f8"),
    ("PMC-Sierra", "11f8"),
    ("ASMedia", "1b21"),
    ("ASPEED", "1a03"),
    ("Red Hat", "1af4"),
    ("Microsoft", "1414"),
)


@lru_cache(maxsize=4)  # several explorers ask about one text
def parse(text: str) -> tuple[Device, ...]:
    """Every function in `text`, in order; of one printed twice, the fuller print. Linear in the text."""
    devices: dict[str, Device] = {}
    loose: list[Device] = []
    for block in _blocks(text):
        device = _Reader(block).device()
        if not device.bdf:
            if device != Device():
                loose.append(device)
        elif device.bdf not in devices or len(block) > 1:
            before = devices.get(device.bdf)
            devices[device.bdf] = device if before is None else _merged(before, device)
    return (*devices.values(), *loose)


def _merged(before: Device, after: Device) -> Device:
    """What either print says; where both do, the later one (a fragment adds to a list, it does not erase it)."""
    said = {
        name: getattr(after, name)
        for name in Device.__struct_fields__
        if getattr(after, name) not in (None, "", (), {}, b"", False)
    }
    return msgspec.structs.replace(before, **said)


def _blocks(text: str) -> Iterable[list[str]]:
    block: list[str] = []
    for line in text.split("\n"):
        if line[:1] not in ("\t", "") and HEADER.match(line):
            yield block
            block = [line]
        elif line:
            block.append(line)
    yield block


def _flags(text: str) -> dict[str, bool]:
    return {name: sign == "+" for name, sign in _FLAG.findall(text)}


def _size(number: str, unit: str) -> int:
    return int(number[:15]) * _UNITS[unit]


def _link(text: str) -> Link:
    speed, width = _SPEED.search(text), _WIDTH.search(text)
    aspm = re.search(r"ASPM ([^,;]+)", text)
    return Link(
        float(speed[1]) if speed and speed[1].count(".") < 2 and speed[1] != "." else None,
        int(width[1][:3]) if width else None,
        aspm[1].strip() if aspm else "",
        _word(text, "Speed"),
        _word(text, "Width"),
    )


def _word(text: str, name: str) -> str:
    found = re.search(rf"{name} \S+ \((\w+)\)", text)
    return found[1] if found else ""


class _Reader:
    """Reads the lines of one function into the fields of a Device."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.said: dict[str, object] = {}
        self.bars: list[Bar] = []
        self.rebars: list[Rebar] = []
        self.capabilities: list[str] = []
        self.hex: list[str] = []
        self.group = ""  # the register group that a continuation line belongs to
        self.in_rebar = False

    def device(self) -> Device:
        lines = iter(self.lines)
        first = next(lines, "")
        if found := HEADER.match(first):
            self.header(found)
        else:
            self.line(first)
        for line in lines:
            self.line(line)
        kept = {
            "bars": tuple(self.bars),
            "rebar": tuple(self.rebars),
            "capabilities": tuple(self.capabilities),
            "config": bytes.fromhex("".join(self.hex)),
        }
        return Device(**{**self.said, **kept})  # type: ignore[arg-type]

    def header(self, found: re.Match[str]) -> None:
        domain = (found["domain"] or "0000").lower()
        self.said["bdf"] = f"{domain}:{found['slot'].lower()}"
        rest = found["rest"] or ""
        if numeric := _NUMERIC.match(rest):
            self.said.update(class_code=numeric["code"].lower(), vendor=numeric["vendor"].lower())
            self.said["device"] = numeric["device"].lower()
        elif named := _CLASS.match(rest):
            self.said.update(class_name=named["class"].strip(), class_code=(named["code"] or "").lower())
            self.ids(named["name"])
            self.said["name"] = _REVISION.sub("", named["name"]).strip()
        if revision := re.search(r"\(rev (\w+)\)", rest):
            self.said["revision"] = revision[1]

    def ids(self, name: str) -> None:
        """The vendor and device, from `[10de:2684]`, else from the vendor's name and `Device 2684`."""
        if found := _IDS.findall(name):
            self.said.update(vendor=found[-1][0].lower(), device=found[-1][1].lower())
            return
        for start, vendor in _VENDORS:
            if name.startswith(start):
                self.said["vendor"] = vendor
        if unnamed := re.search(r"\bDevice ([0-9a-f]{4})\b", name):
            self.said["device"] = unnamed[1]

    def line(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if text.startswith("Capabilities:"):
            self.group = ""
            self.capability(text)
            return
        head, colon, rest = text.partition(":")
        if colon and head in _REGISTERS:
            self.group = head
            _REGISTERS[head](self, rest)
        elif self.group in _CONTINUED and (line[:3] == "\t\t\t" or line[:12].isspace()):
            self.flags(_CONTINUED[self.group], text)
            self.sizes(text)
        elif ":" in text[2:4] and (found := _HEX.match(text)):
            self.hex.append(found[1])
        elif "Memory at " in text[:40]:
            self.region(text)
        elif self.in_rebar and text.startswith("BAR "):
            self.resizable(text)
        else:
            self.plain(text)

    def capability(self, text: str) -> None:
        if "<access denied>" in text:
            self.said["access_denied"] = True
            return
        name = re.sub(r"^Capabilities: (?:\[\S+(?: v\d+)?\] )?", "", text)
        self.capabilities.append(name)
        self.in_rebar = name.startswith("Physical Resizable BAR")
        if name.startswith("Express") and (found := _PORT.match(name)):
            self.said["port"] = found[1].strip()

    def flags(self, field: str, text: str) -> None:
        if found := _flags(text):
            self.said[field] = {**self.said.get(field, {}), **found}  # type: ignore[dict-item]

    def sizes(self, text: str) -> None:
        if self.group == "DevCtl":
            if found := re.search(r"MaxPayload (\d+) bytes", text):
                self.said["payload_bytes"] = int(found[1][:6])
            if found := re.search(r"MaxReadReq (\d+) bytes", text):
                self.said["read_request_bytes"] = int(found[1][:6])

    def region(self, text: str) -> None:
        found = _REGION.match(text)
        if not found:
            return
        size = _SIZE.search(text)
        address = "" if found[2].startswith("<") else found[2]
        self.bars.append(
            Bar(
                int(found[1]) if found[1] else None,
                _size(size[1], size[2]) if size else None,
                not found[4],
                int(found[3]),
                address,
                "[disabled]" in text,
            )
        )

    def resizable(self, text: str) -> None:
        if found := _BAR_SIZE.search(text):
            supported = tuple(_size(*pair) for pair in _ONE_SIZE.findall(found[4] or ""))
            self.rebars.append(Rebar(int(found[1]), _size(found[2], found[3]), supported))

    def plain(self, text: str) -> None:
        if "NUMA node" in text and (found := re.search(r"NUMA node:? (-?\d+)", text)):
            self.said["numa_node"] = int(found[1][:4])
        if "IOMMU group" in text and (found := re.search(r"IOMMU group:? (\d+)", text)):
            self.said["iommu_group"] = int(found[1][:6])
        if text.startswith("ACSCtl") and (found := _SETPCI_ACS.match(text)):
            self.acs_ctl(found[1])

    def numa(self, rest: str) -> None:
        if rest.strip().lstrip("-").isdigit():
            self.said["numa_node"] = int(rest.strip()[:4])

    def group_number(self, rest: str) -> None:
        if rest.strip().isdigit():
            self.said["iommu_group"] = int(rest.strip()[:6])

    def bus(self, rest: str) -> None:
        if found := _BUS.search(rest):
            self.said.update(secondary_bus=int(found[2][:4], 16), subordinate_bus=int(found[3][:4], 16))

    def acs_ctl(self, rest: str) -> None:
        if found := re.match(r"\s*(?:0x)?([0-9a-fA-F]{4})\b", rest):
            word = int(found[1], 16)
            self.said["acs_ctl"] = {name: bool(word >> bit & 1) for bit, name in enumerate(_ACS_BITS)}
        else:
            self.flags("acs_ctl", rest)

    def dev_cap(self, rest: str) -> None:
        if found := re.search(r"MaxPayload (\d+) bytes", rest):
            self.said["payload_cap_bytes"] = int(found[1][:6])

    def dev_ctl(self, rest: str) -> None:
        self.flags("dev_ctl", rest)
        self.sizes(rest)

    def target(self, rest: str) -> None:
        if found := re.search(r"Target Link Speed: (\d+(?:\.\d+)?)GT/s", rest):
            self.said["target_speed_gts"] = float(found[1])

    def link_ctl(self, rest: str) -> None:
        if (found := re.search(r"ASPM ([^;,]+)", rest)) and isinstance(
            cap := self.said.get("link_sta"), Link
        ):
            self.said["link_sta"] = msgspec.structs.replace(cap, aspm=found[1].strip())
        elif found:
            self.said["link_sta"] = Link(aspm=found[1].strip())

    def link_sta(self, rest: str) -> None:
        before = self.said.get("link_sta")
        aspm = before.aspm if isinstance(before, Link) else ""
        self.said["link_sta"] = msgspec.structs.replace(_link(rest), aspm=aspm)


def _keep(field: str) -> Callable[[_Reader, str], None]:
    return lambda reader, rest: reader.said.__setitem__(field, rest.strip())


def _take_flags(field: str) -> Callable[[_Reader, str], None]:
    return lambda reader, rest: reader.flags(field, rest)


_REGISTERS: dict[str, Callable[[_Reader, str], None]] = {
    "LnkCap": lambda reader, rest: reader.said.__setitem__("link_cap", _link(rest)),
    "LnkSta": _Reader.link_sta,
    "LnkCtl": _Reader.link_ctl,
    "LnkCtl2": _Reader.target,
    "DevCap": _Reader.dev_cap,
    "DevCtl": _Reader.dev_ctl,
    "DevSta": _take_flags("dev_sta"),
    "DevCap2": _take_flags("dev_cap2"),
    "DevCtl2": _take_flags("dev_ctl2"),
    "ACSCap": _take_flags("acs_cap"),
    "ACSCtl": _Reader.acs_ctl,
    "UESta": _take_flags("uncorrectable"),
    "CESta": _take_flags("correctable"),
    "ATSCtl": _take_flags("ats"),
    "Bus": _Reader.bus,
    "NUMA node": _Reader.numa,
    "IOMMU group": _Reader.group_number,
    "Subsystem": _keep("subsystem"),
    "Physical Slot": _keep("slot"),
    "Kernel driver in use": _keep("driver"),
    "Kernel modules": lambda reader, rest: reader.said.__setitem__(
        "modules", tuple(word.strip() for word in rest.split(",") if word.strip())
    ),
}
_CONTINUED = {"DevCtl": "dev_ctl", "DevCap2": "dev_cap2", "DevCtl2": "dev_ctl2", "UESta": "uncorrectable"}


def parents(devices: Iterable[Device]) -> dict[str, str]:
    """bdf → bdf of the bridge right above it, from the bridges' bus numbers; roots have no entry."""
    above: dict[tuple[str, int], str] = {}
    listed = tuple(devices)
    for device in listed:
        if device.secondary_bus is not None and device.bdf:
            above[device.bdf.split(":")[0], device.secondary_bus] = device.bdf
    found = {}
    for device in listed:
        if device.bdf:
            domain, bus, _ = device.bdf.split(":")
            if bridge := above.get((domain, int(bus, 16))):
                found[device.bdf] = bridge
    return found


def path(bdf: str, up: dict[str, str]) -> tuple[str, ...]:
    """The bridges above `bdf`, nearest first; stops where bus numbers make a loop."""
    found: list[str] = []
    while (bdf := up.get(bdf, "")) and bdf not in found:
        found.append(bdf)
    return tuple(found)


# Vendors of devices that only hypervisors present: virtio and QEMU, VMware, Hyper-V, Xen. Amazon's own stand in its
# bare-metal instances too.
_VIRTUAL = frozenset(("1af4", "1b36", "15ad", "1414", "5853"))
_VIRTUAL_NAME = re.compile(
    r"Virtio|QEMU|VMware|Hyper-V|Bochs|XenSource|440FX|82G33/G31/P35/P31 Express DRAM.*QEMU"
)


def is_virtual(device: Device) -> bool:
    """Whether only a hypervisor presents such a device."""
    return device.vendor in _VIRTUAL or bool(_VIRTUAL_NAME.search(f"{device.name} {device.subsystem}"))
