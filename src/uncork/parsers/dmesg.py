"""The kernel log, as dmesg and the journal print it: what it says about GPUs, PCIe and the IOMMU."""

import re
from functools import lru_cache

import msgspec

_BDF = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_XID = re.compile(rf"NVRM: Xid \((?:PCI:)?({_BDF})\): (\d{{1,4}}),? ?(.*)")
_SXID = re.compile(rf"nvidia-nvswitch\d*: SXid \((?:PCI:)?({_BDF})\): (\d{{1,6}}),? ?(.*)")
_LOST = re.compile(rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?({_BDF})")
_FELL = re.compile(r"has fallen off the bus|fallen off the bus and is not responding")
_PROBE = re.compile(r"NVRM: The NVIDIA probe routine failed for (\d+) device")
_LOADED = re.compile(
    r"NVRM: loading NVIDIA UNIX (Open )?(?:\S+ )?(?:Kernel Module(?: for \S+)?)\s+(\d+\.\d+(?:\.\d+)?)"
)
_MISMATCH = re.compile(r"NVRM: API mismatch: .*?version (\d+\.\d+(?:\.\d+)?)")
_MODULE = re.compile(r"NVRM: this kernel module has the version (\d+\.\d+(?:\.\d+)?)")
_DMAR = re.compile(
    rf"DMAR: .*\[DMA (Write|Read)[^\]]*\] Request device \[({_BDF})\].*?fault addr (?:0x)?([0-9a-f]+)"
)
_AMDVI = re.compile(
    rf"(?:\S+ ({_BDF}): )?AMD-Vi: Event logged \[(?:IO_PAGE_FAULT|ILLEGAL_DEV_TABLE_ENTRY) (?:device=({_BDF}) )?"
    r".*?address=(?:0x)?([0-9a-f]+)"
)
_PCIE_ERROR = re.compile(rf"({_BDF}): PCIe Bus Error: severity=([\w -]+(?:\([\w-]+\))?)")
_RESOURCE = re.compile(
    rf"({_BDF}): (?:VF )?(BAR \d{{1,2}}|bridge window)[ :].*?"
    r"(?P<how>can't assign; no space|failed to assign|no space for|assigned)"
)
_RESOURCE_KIND = re.compile(r"\[(io|mem)\b[^\]]*?( pref)?\]")
_SIZE = re.compile(r"size (0x[0-9a-f]{1,16})")
_OSC = re.compile(r"_OSC: platform does not support \[([^\]]*)\]")
_DOMAIN = re.compile(r"iommu: Default domain type: (\w+)")
_COMMAND_LINE = re.compile(r"(?:Kernel c|C)ommand line: (.*)")
_VERSION = re.compile(r"Linux version (\S+)")
_NOT_STARTED = re.compile(
    r"NVRM: (?:RmInitAdapter failed|rm_init_adapter failed|No NVIDIA GPU found|failed to initialize)"
)
_WORDS = (
    "NVRM",
    "DMAR",
    "AMD-Vi",
    "AER",
    "PCIe Bus Error",
    "nvswitch",
    "assign",
    "no space",
    "_OSC",
    "iommu",
    "ommand line",
)


class Event(msgspec.Struct, frozen=True):
    """One line about one function; `bdf` as printed, lower case."""

    bdf: str
    what: str
    text: str


class Xid(msgspec.Struct, frozen=True):
    """An NVIDIA Xid (GPU) or SXid (NVSwitch)."""

    bdf: str
    code: int
    text: str


class BarFailure(msgspec.Struct, frozen=True):
    """A BAR or bridge window that found no room and got none later; `bar` None for a window."""

    bdf: str
    bar: int | None
    size_bytes: int | None
    text: str


class Log(msgspec.Struct, frozen=True):
    """What a kernel log says about GPUs and their way to memory; empty is nothing said."""

    kernel: str | None = None
    command_line: str | None = None
    xids: tuple[Xid, ...] = ()
    sxids: tuple[Xid, ...] = ()
    lost: tuple[Event, ...] = ()  # GPUs that fell off the bus, with or without an Xid
    probe_failures: int = 0
    driver: str | None = None
    driver_open: bool | None = None
    client_version: str | None = None  # of an API mismatch
    module_version: str | None = None
    iommu_faults: tuple[Event, ...] = ()
    aer: tuple[Event, ...] = ()
    bar_failures: tuple[BarFailure, ...] = ()
    not_controlled: tuple[str, ...] = ()  # _OSC: what firmware keeps for itself (AER, DPC, …)
    iommu_domain: str | None = None  # Translated, Passthrough
    not_started: tuple[str, ...] = ()


class _Reader:
    def __init__(self) -> None:
        self.said: dict[str, object] = {}
        self.lists: dict[str, list[object]] = {}
        self.bars: dict[tuple[str | None, ...], BarFailure] = {}
        self.gpu = ""  # the GPU that a message over several lines is about
        self.gpu_line = ""

    def add(self, field: str, value: object) -> None:
        found = self.lists.setdefault(field, [])
        if len(found) < 10_000:
            found.append(value)

    def first(self, field: str, value: object) -> None:
        self.said.setdefault(field, value)


@lru_cache(maxsize=4)  # several explorers ask about one text
def parse(text: str) -> Log:
    """Read a log of any length; lines that say nothing about the subject cost one look each."""
    reader = _Reader()
    for line in text.split("\n"):
        if "Linux version" in line and (found := _VERSION.search(line)):
            reader.first("kernel", found[1])
        elif any(word in line for word in _WORDS):
            _line(reader, line[:1000].strip())
    lists = {field: tuple(values) for field, values in reader.lists.items()}
    lists["bar_failures"] = tuple(reader.bars.values())
    lists["not_controlled"] = tuple(dict.fromkeys(lists.get("not_controlled", ())))
    return Log(**{**reader.said, **lists})  # type: ignore[arg-type]


def _line(reader: _Reader, line: str) -> None:
    if "NVRM" in line or "nvswitch" in line:
        _nvidia(reader, line)
    if "DMAR" in line and (found := _DMAR.search(line)):
        reader.add("iommu_faults", Event(found[2].lower(), f"DMA {found[1]}", line))
    elif "AMD-Vi" in line and (found := _AMDVI.search(line)):
        reader.add("iommu_faults", Event((found[1] or found[2] or "").lower(), "IO_PAGE_FAULT", line))
    elif found := _PCIE_ERROR.search(line):
        reader.add("aer", Event(found[1].lower(), found[2].strip(), line))
    elif "assign" in line or "no space" in line:
        _resource(reader, line)
    elif found := _OSC.search(line):
        for word in found[1].split():
            reader.add("not_controlled", word)
    elif found := _DOMAIN.search(line):
        reader.first("iommu_domain", found[1])
    elif found := _COMMAND_LINE.search(line):
        reader.first("command_line", found[1].strip())


def _resource(reader: _Reader, line: str) -> None:
    """The kernel tries again after a failure, so the last word about a window or BAR counts."""
    found = _RESOURCE.search(line)
    if not found:
        return
    kind = _RESOURCE_KIND.search(line)
    key = (found[1].lower(), found[2], kind[0].partition(" ")[0] if kind else "", kind[2] if kind else "")
    if found["how"] == "assigned":
        reader.bars.pop(key, None)
    else:
        size = _SIZE.search(line)
        bar = int(found[2][4:]) if found[2].startswith("BAR") else None
        reader.bars[key] = BarFailure(key[0], bar, int(size[1], 16) if size else None, line)


def _nvidia(reader: _Reader, line: str) -> None:
    if found := _XID.search(line):
        reader.add("xids", Xid(found[1].lower(), int(found[2]), line))
    elif found := _SXID.search(line):
        reader.add("sxids", Xid(found[1].lower(), int(found[2]), line))
    elif found := _LOADED.search(line):
        # The last load wins: a reload after an upgrade is what runs now.
        reader.said.update(driver=found[2], driver_open=bool(found[1]))
    elif found := _PROBE.search(line):
        reader.said["probe_failures"] = int(found[1][:6])
    elif found := _MISMATCH.search(line):
        reader.first("client_version", found[1])
    elif found := _MODULE.search(line):
        reader.first("module_version", found[1])
    elif _NOT_STARTED.search(line):
        reader.add("not_started", line)
    if _FELL.search(line):
        gpu = _LOST.search(line)
        bdf = gpu[1].lower() if gpu else reader.gpu
        lines = line if gpu else " ".join(filter(None, (reader.gpu_line, line)))
        reader.add("lost", Event(bdf, "fell off the bus", lines))
    elif found := _LOST.search(line):
        reader.gpu, reader.gpu_line = found[1].lower(), line
