"""sysctl -a, sysctl.conf, /proc/cmdline and lsmod: names and values."""

import re

_KEY = re.compile(r"^-?([a-z][\w]*(?:[./][\w:@*-]+)+)\s*=\s*(.*)$")


def parse(text: str) -> dict[str, str]:
    """Key → value with runs of blanks as one space; the last of a key counts, as sysctl applies it."""
    found = {}
    for line in text.split("\n"):
        if match := _KEY.match(line.strip()[:4000]):
            found[match[1].replace("/", ".")] = " ".join(match[2].split())
    return found


def parse_cmdline(text: str) -> dict[str, tuple[str, ...]]:
    """Kernel parameters: name → its values in order ("" for a bare word). What follows `--` is not the kernel's."""
    found: dict[str, list[str]] = {}
    for word in re.findall(r'(?:[^\s"]|"[^"]*")+', text):
        if word == "--":
            break
        name, _, value = word.partition("=")
        found.setdefault(name, []).append(value.strip('"'))
    return {name: tuple(values) for name, values in found.items()}


def iommu_of_cmdline(text: str) -> str | None:
    """`off`, `pt`, `on`, `soft`, … as the parameters ask; None where none is about the IOMMU.

    Documentation/admin-guide/kernel-parameters.txt: iommu=off and intel_iommu=off/amd_iommu=off switch it off;
    iommu=pt chooses passthrough whatever else says on.
    """
    given = parse_cmdline(text)
    words = [
        part
        for name in ("iommu", "intel_iommu", "amd_iommu")
        for value in given.get(name, ())
        for part in value.split(",")
    ]
    if given.get("iommu.passthrough", ("",))[-1] == "1":
        words.append("pt")
    for chosen in ("off", "pt", "soft"):
        if chosen in words:
            return chosen
    return words[-1] if words else None


def parse_lsmod(text: str) -> tuple[str, ...]:
    """Names of modules in `lsmod` (with or without its header line)."""
    rows = (line.split() for line in text.split("\n"))
    return tuple(
        row[0] for row in rows if len(row) >= 3 and row[1].isdecimal() and row[2].lstrip("-").isdecimal()
    )
