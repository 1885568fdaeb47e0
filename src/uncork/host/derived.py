"""The files of /proc and /sys that an attached tool output was printed from.

An explorer reads `/proc/sys/vm/swappiness`; people attach `sysctl -a`. Only what a tool prints unchanged is
put back; nothing is guessed, and a value that two attachments state differently is taken from the first.
"""

import re
from collections.abc import Iterator

_CLOCKSOURCE = "/sys/devices/system/clocksource/clocksource0/"
_CLOCKSOURCES = frozenset(
    (
        *("tsc", "tsc-early", "hpet", "acpi_pm", "jiffies", "kvm-clock", "xen", "arch_sys_counter"),
        *("hyperv_clocksource_tsc_page", "hyperv_clocksource_msr", "refined-jiffies"),
    )
)
_THP = "/sys/kernel/mm/transparent_hugepage/"
_NODE = "/sys/devices/system/node/"
_DMI = "/sys/class/dmi/id/"
_DMIDECODE = (
    ("BIOS Information", "Vendor", "bios_vendor"),
    ("BIOS Information", "Version", "bios_version"),
    ("BIOS Information", "Release Date", "bios_date"),
    ("System Information", "Manufacturer", "sys_vendor"),
    ("System Information", "Product Name", "product_name"),
    ("Base Board Information", "Manufacturer", "board_vendor"),
    ("Base Board Information", "Product Name", "board_name"),
)

Found = Iterator[tuple[str, str]]


def from_kind(kind: str, text: str) -> Found:
    """(path, content) for every file that this text of that kind gives back."""
    if kind in _SIMPLE:
        yield _SIMPLE[kind], text.strip() + "\n"
    elif kind in _FUNCTIONS:
        yield from _FUNCTIONS[kind](text)


def from_bare_value(name: str, text: str) -> Found:
    """A file that holds one bare value of /proc or /sys; its name decides where the value alone cannot."""
    value = text.strip()
    words = value.split()
    if not words or len(value) > 4096:
        return
    if all(word in _CLOCKSOURCES for word in words):
        current = "current" in name and len(words) == 1
        yield _CLOCKSOURCE + ("current_clocksource" if current else "available_clocksource"), value + "\n"
    elif re.fullmatch(r"(?:max|\d+) \d{4,7}", value) and ("cpu" in name or words[1] == "100000"):
        yield "/sys/fs/cgroup/cpu.max", value + "\n"
    elif "madvise" in words or "[madvise]" in words:
        yield _THP + ("defrag" if "defer" in value else "enabled"), value + "\n"
    elif re.match(r"nr_periods |usage_usec ", value):
        yield "/sys/fs/cgroup/cpu.stat", value + "\n"
    else:
        for file in ("pids.max", "memory.max", "cpuset.cpus.effective", "pids.current"):
            if file in name and len(words) == 1:
                yield "/sys/fs/cgroup/" + file, value + "\n"


def _sysctl(text: str) -> Found:
    for line in text.split("\n"):
        key, equals, value = line.partition("=")
        key = key.strip().lstrip("-")
        if equals and re.fullmatch(r"[a-z][\w./:@*-]+", key):
            # sysctl prints dots for slashes and slashes for dots (net/ipv4/conf/eth0.1).
            path = key if "/" in key and "." not in key else key.translate(str.maketrans("./", "/."))
            yield "/proc/sys/" + path, value.strip() + "\n"


def _dmesg(text: str) -> Found:
    if found := re.search(r"(?:Kernel c|C)ommand line: (.*)", text):
        yield "/proc/cmdline", found[1].strip() + "\n"
    if found := re.search(r"Linux version (\S+) .*", text):
        yield "/proc/version", found[0].strip() + "\n"
        yield "/proc/sys/kernel/osrelease", found[1] + "\n"
    if found := re.search(r"DMI: (.+?), BIOS (\S+) (\d\d/\d\d/\d{4})", text):
        system, _, board = found[1].partition("/")
        vendor, _, product = system.strip().partition(" ")
        yield _DMI + "sys_vendor", vendor + "\n"
        yield _DMI + "product_name", product + "\n"
        if board:
            yield _DMI + "board_name", board + "\n"
        yield _DMI + "bios_version", found[2] + "\n"
        yield _DMI + "bios_date", found[3] + "\n"


def _uname(text: str) -> Found:
    if found := re.search(r"Linux [\w.-]+ (\d+\.\d+\S*) ", text):
        yield "/proc/sys/kernel/osrelease", found[1] + "\n"


def _proc_version(text: str) -> Found:
    yield "/proc/version", text.strip() + "\n"
    if found := re.search(r"Linux version (\S+)", text):
        yield "/proc/sys/kernel/osrelease", found[1] + "\n"


def _lscpu(text: str) -> Found:
    cpu = "/sys/devices/system/cpu/"
    for label, file in (("On-line CPU(s) list", "online"), ("Off-line CPU(s) list", "offline")):
        if found := re.search(rf"^\s*{re.escape(label)}:\s*(\S+)", text, re.MULTILINE):
            yield cpu + file, found[1] + "\n"
    nodes = re.findall(r"^\s*NUMA node(\d+) CPU\(s\):[ \t]*(\S*)", text, re.MULTILINE)
    for number, cpus in nodes:
        yield f"{_NODE}node{number}/cpulist", cpus + "\n"
    if nodes:
        yield _NODE + "online", ",".join(number for number, _ in nodes) + "\n"


def _numactl(text: str) -> Found:
    nodes = re.findall(r"^node (\d+) cpus:", text, re.MULTILINE)
    if nodes:
        yield _NODE + "online", ",".join(nodes) + "\n"
    for number, cpus in re.findall(r"^node (\d+) cpus:([\d ]*)$", text, re.MULTILINE):
        yield f"{_NODE}node{number}/cpulist", ",".join(cpus.split()) + "\n"
    for number, size in re.findall(r"^node (\d+) size: (\d+) MB", text, re.MULTILINE):
        free = re.search(rf"^node {number} free: (\d+) MB", text, re.MULTILINE)
        lines = f"Node {number} MemTotal: {int(size) * 1024} kB\n"
        yield (
            f"{_NODE}node{number}/meminfo",
            lines + (f"Node {number} MemFree: {int(free[1]) * 1024} kB\n" if free else ""),
        )
    for number, distances in re.findall(r"^ +(\d+): +([\d ]+)$", text, re.MULTILINE):
        yield f"{_NODE}node{number}/distance", " ".join(distances.split()) + "\n"


def _dmidecode(text: str) -> Found:
    for section, label, file in _DMIDECODE:
        pattern = rf"^{section}\n(?:[ \t]+.*\n)*?[ \t]+{label}: (.*)$"
        if found := re.search(pattern, text, re.MULTILINE):
            yield _DMI + file, found[1].strip() + "\n"


def _limits(text: str) -> Found:
    if re.search(r"^Max (?:locked memory|open files|processes)\s", text, re.MULTILINE):
        yield "/proc/self/limits", text.strip() + "\n"


def _ibstat(text: str) -> Found:
    device, port = "", ""
    for line in text.split("\n"):
        if found := re.match(r"CA '([\w-]+)'", line):
            device, port = found[1], ""
        elif found := re.match(r"\s+Port (\d+):\s*$", line):
            port = found[1]
        elif (
            device and port and (found := re.match(r"\s+(State|Physical state|Rate|Link layer): (.+)$", line))
        ):
            path = f"/sys/class/infiniband/{device}/ports/{port}/"
            value = found[2].strip()
            # sysfs numbers its states as the InfiniBand specification does (PortInfo); ibstat prints the words.
            number = _IB_STATES.get((found[1], value.upper()))
            written = f"{number}: {value.upper() if found[1] == 'State' else value}" if number else value
            if found[1] == "Rate":
                written = f"{value} Gb/sec"
            yield path + _IB_FILES[found[1]], written + "\n"


def _show_gids(text: str) -> Found:
    """Mellanox's `show_gids`: the kernel's own words for its v1 and v2 (sysfs-class-infiniband, gid_attrs)."""
    row = r"^(\w+)\s+(\d{1,3})\s+(\d{1,3})\s+[0-9a-f:]{39}\s+(?:[\d.]+\s+)?v([12])\b"
    for device, port, index, version in re.findall(row, text, re.MULTILINE):
        kind = "RoCE v2" if version == "2" else "IB/RoCE v1"
        yield f"/sys/class/infiniband/{device}/ports/{port}/gid_attrs/types/{index}", kind + "\n"


_IB_FILES = {"State": "state", "Physical state": "phys_state", "Rate": "rate", "Link layer": "link_layer"}
_IB_STATES = {
    ("State", "DOWN"): 1,
    ("State", "INIT"): 2,
    ("State", "INITIALIZING"): 2,
    ("State", "ARMED"): 3,
    ("State", "ACTIVE"): 4,
    ("Physical state", "SLEEP"): 1,
    ("Physical state", "POLLING"): 2,
    ("Physical state", "DISABLED"): 3,
    ("Physical state", "LINKUP"): 5,
}


def _cpupower(text: str) -> Found:
    policy = "/sys/devices/system/cpu/cpufreq/policy"
    cpu = "0"
    for line in text.split("\n"):
        if found := re.match(r"analyzing CPU (\d+):", line):
            cpu = found[1]
        elif found := re.match(r"\s+driver: (\S+)", line):
            yield f"{policy}{cpu}/scaling_driver", found[1] + "\n"
        elif found := re.search(r'The governor "(\w+)" may decide', line):
            yield f"{policy}{cpu}/scaling_governor", found[1] + "\n"
        elif found := re.match(r"\s+available cpufreq governors: (.+)$", line):
            yield f"{policy}{cpu}/scaling_available_governors", found[1].strip() + "\n"


_DF_UNITS = {"": 1024, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


def space(text: str, path: str) -> dict[str, int] | None:
    """Size and free bytes of the file system mounted at `path` in what `df` printed."""
    unit = 1 << 20 if re.search(r"1M-blocks", text) else 1 << 10
    for line in text.split("\n"):
        words = line.split()
        if len(words) < 6 or words[-1] != path:
            continue
        figures = [re.fullmatch(r"([\d.]{1,15})([KMGTP]?)i?B?", word) for word in (words[-5], words[-3])]
        if all(found and found[1].count(".") < 2 and found[1] != "." for found in figures):
            size, free = (
                int(float(found[1]) * (_DF_UNITS[found[2]] if found[2] else unit))
                for found in figures
                if found
            )
            return {"size_bytes": size, "free_bytes": free}
    return None


def _lsmod(text: str) -> Found:
    rows = [line.split(maxsplit=3) for line in text.split("\n")[1:]]
    kept = [row for row in rows if len(row) >= 3 and row[1].isdigit() and row[2].lstrip("-").isdigit()]
    if text.startswith("Module") and kept:
        lines = (
            f"{row[0]} {row[1]} {row[2]} {row[3] + ',' if len(row) > 3 else '-'} Live 0x0" for row in kept
        )
        yield "/proc/modules", "\n".join(lines) + "\n"


_SIMPLE = {
    "cmdline": "/proc/cmdline",
    "meminfo": "/proc/meminfo",
    "swaps": "/proc/swaps",
    "interrupts": "/proc/interrupts",
    "cpuinfo": "/proc/cpuinfo",
    "nvidia-version": "/proc/driver/nvidia/version",
    "nvidia-params": "/proc/driver/nvidia/params",
    "modprobe": "/etc/modprobe.d/attached.conf",
}
_FUNCTIONS = {
    "sysctl": _sysctl,
    "dmesg": _dmesg,
    "uname": _uname,
    "proc-version": _proc_version,
    "lscpu": _lscpu,
    "numactl": _numactl,
    "dmidecode": _dmidecode,
    "limits": _limits,
    "ibstat": _ibstat,
    "show-gids": _show_gids,
    "cpupower": _cpupower,
    "lsmod": _lsmod,
}
