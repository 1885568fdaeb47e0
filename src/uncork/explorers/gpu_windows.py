"""Memory windows (BARs) of GPUs, from sysfs or from attached lspci output."""

import re

from uncork.explorers import reading
from uncork.host import Host
from uncork.model.facts.firmware import Bar, GpuWindows
from uncork.model.unknown import Unknown
from uncork.parsers import lspci

# include/linux/ioport.h
_MEMORY, _PREFETCH, _64BIT, _UNSET = 0x200, 0x2000, 0x100000, 0x20000000
_VENDORS = ("0x10de", "0x1002", "0x8086")
_MIB = 1 << 20


def gpu_windows(host: Host) -> tuple[GpuWindows, ...] | Unknown:
    """One entry a GPU, by its address. An Intel GPU counts only with a window of 256 MiB and its own bus."""
    names = host.list("/sys/bus/pci/devices")
    if isinstance(names, Unknown):
        return _attached(host, names)
    found = []
    for bdf in names:
        folder = f"/sys/bus/pci/devices/{bdf}"
        kind = reading.text(host, f"{folder}/class")
        vendor = reading.text(host, f"{folder}/vendor")
        if isinstance(kind, Unknown) or isinstance(vendor, Unknown) or vendor not in _VENDORS:
            continue
        if not kind.startswith(("0x0300", "0x0302", "0x0380", "0x1200")) or (
            vendor == "0x8086" and ":00:" in bdf
        ):
            continue
        device = reading.text(host, f"{folder}/device")
        found.append(
            GpuWindows(
                bdf,
                vendor,
                "" if isinstance(device, Unknown) else device,
                reading.parsed(host, f"{folder}/resource", bars),
                _offered(host, folder),
            )
        )
    return tuple(found)


def bars(resource: str) -> tuple[Bar, ...]:
    """Memory windows of a sysfs `resource` file; the first six lines are the BARs."""
    found = []
    for index, line in enumerate(resource.splitlines()[:6]):
        words = line.split()
        if len(words) != 3 or not all(re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word) for word in words):
            continue
        start, end, flags = (int(word, 16) for word in words)
        if not flags & _MEMORY:
            continue
        assigned = not flags & _UNSET and start != 0
        found.append(
            Bar(index, start, end - start + 1, bool(flags & _PREFETCH), bool(flags & _64BIT), assigned)
        )
    return tuple(found)


def _offered(host: Host, folder: str) -> int | Unknown | None:
    """The largest size that the frame-buffer BAR could have: resource1_resize (NVIDIA), resource0_resize (AMD)."""
    texts = [reading.text(host, f"{folder}/resource{index}_resize") for index in (0, 1, 2)]
    sizes = [
        int(text, 16)
        for text in texts
        if not isinstance(text, Unknown) and re.fullmatch(r"(0x)?[0-9a-f]+", text)
    ]
    if sizes:
        return max(_MIB << size.bit_length() - 1 for size in sizes if size) if any(sizes) else None
    data = host.read_bytes(f"{folder}/config")
    if isinstance(data, Unknown):
        return data
    if len(data) < 4096:
        return Unknown(
            f"only {len(data)} bytes of configuration space can be read: the capability lies above"
        )
    return _from_config(data)


def _from_config(data: bytes) -> int | None:
    """The resizable BAR capability (id 0x15): sizes in bits 31:4 of the word at +4, bit 4 being 1 MiB."""
    at, seen = 0x100, set()
    while 0x100 <= at < 4092 and at not in seen:
        seen.add(at)
        header = int.from_bytes(data[at : at + 4], "little")
        if header in (0, 0xFFFFFFFF):
            break
        if header & 0xFFFF == 0x15:
            count = data[at + 8] >> 5
            words = [
                int.from_bytes(data[at + 4 + 8 * n : at + 8 + 8 * n], "little") >> 4 for n in range(count)
            ]
            return max((_MIB << word.bit_length() - 1 for word in words if word), default=None)
        at = header >> 20 & 0xFFC
    return None


def _attached(host: Host, reason: Unknown) -> tuple[GpuWindows, ...] | Unknown:
    answer = host.run(("lspci", "-vvv"))
    if isinstance(answer, Unknown):
        return reading.settled_by(
            reason if not answer.absent or not reason.absent else answer, "`lspci -vvv` as root"
        )
    found = []
    for device in lspci.parse(answer.stdout):
        if not device.is_gpu or device.vendor in ("1a03", "102b") or not device.bars:
            continue
        windows = tuple(
            Bar(
                -1 if bar.index is None else bar.index,
                int(bar.address, 16) if re.fullmatch(r"[0-9a-fA-F]+", bar.address) else 0,
                bar.size_bytes or 0,
                bar.prefetchable,
                bar.bits == 64,
                bool(re.fullmatch(r"0*[1-9a-fA-F][0-9a-fA-F]*", bar.address)),
            )
            for bar in device.bars
        )
        sizes = [size for rebar in device.rebar for size in rebar.supported_bytes]
        offered: int | Unknown | None = max(sizes, default=None)
        if not device.rebar and (device.access_denied or not device.capabilities):
            offered = Unknown("lspci was not run as root: its capabilities were not printed")
        found.append(GpuWindows(device.bdf, f"0x{device.vendor}", f"0x{device.device}", windows, offered))
    return tuple(found) or Unknown("lspci -vvv shows no GPU with memory windows")
