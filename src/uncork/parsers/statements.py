"""What a reporter states in their own words: `driver: 550.90.07 (P2P-patched open module)`.

Words are weaker than a tool's output: an explorer uses them only where no tool was attached, and a finding that
rests on one shows the line.
"""

import re
from collections.abc import Callable

import msgspec

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = r"(\d{1,7}(?:\.\d{1,3})?) ?([KMGT])i?B?\b"


class Sized(msgspec.Struct, frozen=True):
    """A size that a line states about something (`host BAR1  256M  32G` → two)."""

    about: str
    bytes: int
    text: str


class Statements(msgspec.Struct, frozen=True):
    """What the lines state; None is not stated. `lines` holds, by field, the line that says so."""

    driver: str | None = None
    driver_patched: bool | None = None
    driver_open: bool | None = None
    kernel: str | None = None
    nccl: str | None = None
    cuda: str | None = None
    gpu: str | None = None
    gpu_count: int | None = None
    platform: str | None = None
    iommu: str | None = None  # translated, passthrough, enabled, off
    acs: str | None = None  # enabled, disabled
    iommu_parameter: str | None = None  # "none" where the line says that no parameter was given
    virtualization: str | None = None
    passthrough: bool | None = None
    persistence: bool | None = None
    shm_bytes: int | None = None
    bar1: tuple[Sized, ...] = ()
    resizable_bar: bool | None = None
    p2p_status: str | None = None
    cpu_limit: float | None = None
    cpus_seen: int | None = None
    throttled_ratio: float | None = None
    fabricmanager: str | None = None
    cured_by: tuple[str, ...] = ()  # lines that say what works
    custom_allreduce_active: bool | None = None
    persons_lines: tuple[str, ...] = ()
    lines: dict[str, str] = {}


def _float(text: str) -> float | None:
    return float(text) if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", text) else None


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNITS[unit])


_VERSION = r"(\d{3}(?:\.\d{1,3}){0,2})\b(?!\.\d)"
Say = Callable[[re.Match[str]], object]
# (field, what a line must match, what it says). The first line that states a field counts.
_TABLE: tuple[tuple[str, re.Pattern[str], Say], ...] = (
    (
        "driver",
        re.compile(rf"^\W*(?:nvidia )?(?:gpu )?driver(?: version)?[: ]+v?{_VERSION}", re.I),
        lambda m: m[1],
    ),
    (
        "driver_patched",
        re.compile(r"P2P[- ]patched|patched (?:P2P )?(?:driver|module|open)", re.I),
        lambda m: True,
    ),
    ("driver_open", re.compile(r"open (?:kernel )?modules?|Dual MIT/GPL", re.I), lambda m: True),
    (
        "kernel",
        re.compile(r"(?:^|[,;(] ?)\W*kernel:? (?:Linux )?v?(\d+\.\d+(?:\.\d+)?[\w.-]*)", re.I),
        lambda m: m[1],
    ),
    (
        "nccl",
        re.compile(r"\bnccl:? v?(\d+\.\d+(?:\.\d+)?)|\blibnccl2=(\d+\.\d+\.\d+)", re.I),
        lambda m: m[1] or m[2],
    ),
    ("cuda", re.compile(r"\bcuda(?: toolkit)?:? v?(\d{1,2}\.\d)\b", re.I), lambda m: m[1]),
    (
        "gpu",
        re.compile(
            r"(?:^\W*(?:gpus?|cards?|name|GPU):? +|[,;:] ?)(?:\d{1,2} ?x )?"
            r"((?:NVIDIA|AMD (?:Instinct|Radeon)|GeForce|RTX|Tesla|Intel Arc)\b[ \w]*)",
            re.I,
        ),
        lambda m: m[1].strip(),
    ),
    (
        "gpu_count",
        re.compile(
            r"\b(\d{1,2}) ?x (?:NVIDIA|AMD|GeForce|RTX|Tesla|GTX|A100|H\d00|K80|B\d+0)|\b(\d{1,2}) GPUs\b",
            re.I,
        ),
        lambda m: int(m[1] or m[2]),
    ),
    (
        "platform",
        re.compile(r"^\W*(?:board|motherboard|system|platform|server|machine): *(.+)$", re.I),
        lambda m: m[1].strip(),
    ),
    ("iommu", re.compile(r"AMD-Vi.*(?:default|translat)|\biommu\b.*translat", re.I), lambda m: "translated"),
    ("iommu", re.compile(r"\biommu\b[^,;]*\b(passthrough|pass-through|pt)\b", re.I), lambda m: "passthrough"),
    ("iommu", re.compile(r"\bIOMMU:? *(?:is )?(?:enabled|on)\b", re.I), lambda m: "enabled"),
    ("iommu", re.compile(r"BIOS default = enabled", re.I), lambda m: "enabled"),
    ("iommu", re.compile(r"\bIOMMU:? *(?:is )?(?:disabled|off)\b", re.I), lambda m: "off"),
    ("acs", re.compile(r"\bACS:? *(?:is )?(disabled|off)\b", re.I), lambda m: "disabled"),
    ("acs", re.compile(r"\bACS:? *(?:is )?(enabled|on)\b", re.I), lambda m: "enabled"),
    (
        "iommu_parameter",
        re.compile(r"no iommu(?:=)? (?:parameter|kernel option)|no `?iommu=", re.I),
        lambda m: "none",
    ),
    (
        "virtualization",
        re.compile(
            r"\b(QEMU|KVM|VMware|Hyper-V|Xen|Proxmox VM)\b.*\b(?:guest|VM|q35|i440fx|passthrough)\b"
            r"|virtuali[sz]ation: *(\w+)",
            re.I,
        ),
        lambda m: (m[1] or m[2]).lower(),
    ),
    ("passthrough", re.compile(r"VFIO passthrough|PCI passthrough|GPU passthrough", re.I), lambda m: True),
    (
        "persistence",
        re.compile(r"Persistence(?:[- ]Mode|-M)?\s*:? *(Enabled|Disabled|On|Off)\b", re.I),
        lambda m: m[1].lower() in ("enabled", "on"),
    ),
    (
        "shm_bytes",
        re.compile(rf"/dev/shm\b[^0-9]{{0,20}}{_SIZE}", re.I),
        lambda m: _bytes(m[1], m[2].upper()),
    ),
    (
        "resizable_bar",
        re.compile(
            r"without resizable bar|resi[sz]e?able bar:? *(?:is )?(?:off|disabled|not)|Re-?Size BAR was off",
            re.I,
        ),
        lambda m: False,
    ),
    ("p2p_status", re.compile(r"topo -p2p \w{1,2}:? +(OK|CNS|GNS|TNS|NS|DR|U)\b"), lambda m: m[1]),
    (
        "cpu_limit",
        re.compile(r"cpu (?:limit|quota):? *(\d{1,4}(?:\.\d+)?) ?(?:cores?|cpus?)", re.I),
        lambda m: _float(m[1]),
    ),
    (
        "cpus_seen",
        re.compile(r"^\W*(?:node|host|machine):? .*?\b(\d{1,4}) (?:cores|cpus)\b", re.I),
        lambda m: int(m[1]),
    ),
    ("throttled_ratio", re.compile(r"throttled? ratio:? *~?(\d(?:\.\d+)?)", re.I), lambda m: _float(m[1])),
    ("fabricmanager", re.compile(rf"^\W*nvidia-fabricmanager[\w-]*:? *{_VERSION}", re.I), lambda m: m[1]),
    ("custom_allreduce_active", re.compile(r"custom all-?reduce (?:is )?active", re.I), lambda m: True),
)
_BAR1 = re.compile(r"BAR ?1", re.I)
_WORKS = re.compile(r"\(works\)|^works:|\bworks\b.*\bafter\b", re.I)


def parse(text: str) -> Statements:
    """Read lines in a person's words. Never more than the words say: a bare `iommu` states nothing."""
    said: dict[str, object] = {}
    lines: dict[str, str] = {}
    bars: list[Sized] = []
    cures: list[str] = []
    kept: list[str] = []
    for line in text.split("\n"):
        line = line[:1000].strip()
        if not line:
            continue
        if len(kept) < 1000:
            kept.append(line)
        if _WORKS.search(line):
            # What works is not the state that is being reported.
            cures.append(line)
            continue
        for field, pattern, say in _TABLE:
            if field not in said and (found := pattern.search(line)):
                said[field], lines[field] = say(found), line
        if _BAR1.search(line):
            bars += _sizes(line)
    whole = {"bar1": tuple(bars), "cured_by": tuple(cures), "persons_lines": tuple(kept), "lines": lines}
    return Statements(**said, **whole)  # type: ignore[arg-type]


def _sizes(line: str) -> list[Sized]:
    """Every size behind `BAR1` on the line; what stands before it says whose."""
    found = _BAR1.search(line)
    if found is None:
        return []
    about = line[: found.start()].strip(" :,-") or "BAR1"
    return [
        Sized(about, _bytes(number, unit.upper()), line)
        for number, unit in re.findall(_SIZE, line[found.end() :])
    ]
