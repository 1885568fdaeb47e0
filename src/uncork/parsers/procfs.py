"""Small texts of /proc and cgroupfs."""

import re

import msgspec


class Mount(msgspec.Struct, frozen=True):
    """One line of mountinfo."""

    device: str  # major:minor
    root: str
    point: str
    options: tuple[str, ...]
    type: str
    source: str
    super_options: tuple[str, ...]


class Swap(msgspec.Struct, frozen=True):
    """One line of /proc/swaps."""

    name: str
    type: str
    size_bytes: int
    used_bytes: int


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdecimal() and len(text) < 30 else None


def counters(text: str) -> dict[str, int]:
    """Lines of `name number` (vmstat, cpu.stat, memory.events)."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: value for pair in pairs if len(pair) == 2 and (value := _number(pair[1])) is not None}


def keyed(text: str) -> dict[str, str]:
    """Lines of `Name:  value` (status, meminfo); the first of a name counts."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def kilobytes(text: str | None) -> int | None:
    """Bytes of `123 kB`, None where it says something else."""
    words = (text or "").split()
    value = _number(words[0]) if words else None
    return None if value is None else value * (1024 if words[1:] == ["kB"] else 1)


def memory_bytes(text: str) -> dict[str, int]:
    """meminfo, of the machine or of a node (`Node 0 MemFree:  1 kB`), in bytes; counts stay counts."""
    plain = re.sub(r"^Node \d+ ", "", text, flags=re.M)
    return {name: value for name, raw in keyed(plain).items() if (value := kilobytes(raw)) is not None}


def limits(text: str) -> dict[str, tuple[int | None, int | None]]:
    """Soft and hard limits of /proc/PID/limits by name; None is unlimited."""
    found: dict[str, tuple[int | None, int | None]] = {}
    pattern = re.compile(r"(Max [a-z ]+?)\s+(unlimited|\d{1,20})\s+(unlimited|\d{1,20})(?:\s+\w+)?\s*$")
    for line in text.splitlines():
        if match := pattern.match(line.strip()):
            soft, hard = (None if word == "unlimited" else int(word) for word in match.groups()[1:])
            found[match[1]] = (soft, hard)
    return found


def pressure(text: str) -> dict[str, dict[str, float]]:
    """A pressure file: {"some": {"avg10": 0.0, …}, "full": {…}}, averages in per cent."""
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        words = line.split()
        if words and words[0] in ("some", "full"):
            pairs = (word.partition("=") for word in words[1:])
            found[words[0]] = {
                name: float(value) for name, _, value in pairs if re.fullmatch(r"\d{1,18}(\.\d+)?", value)
            }
    return found


def swaps(text: str) -> tuple[Swap, ...]:
    """/proc/swaps, sizes in bytes."""
    found = []
    for line in text.splitlines()[1:]:
        words = line.split()
        sizes = [_number(word) for word in words[2:4]]
        if len(sizes) == 2 and None not in sizes:
            found.append(Swap(words[0], words[1], (sizes[0] or 0) * 1024, (sizes[1] or 0) * 1024))
    return tuple(found)


def mounts(text: str) -> tuple[Mount, ...]:
    """/proc/PID/mountinfo."""
    found = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        words, rest = left.split(), right.split()
        if dash and len(words) >= 6 and len(rest) >= 2:
            options = tuple(words[5].split(","))
            more = tuple(rest[2].split(",")) if len(rest) > 2 else ()
            point = words[4].replace("\\040", " ")
            found.append(Mount(words[2], words[3], point, options, rest[0], rest[1], more))
    return tuple(found)


def mount_of(path: str, table: tuple[Mount, ...]) -> Mount | None:
    """The mount that holds a path: the longest mount point above it, the last mounted of equal ones."""
    best: Mount | None = None
    for mount in table:
        point = mount.point.rstrip("/")
        if (path + "/").startswith(point + "/") and (
            best is None or len(point) >= len(best.point.rstrip("/"))
        ):
            best = mount
    return best


def character_majors(text: str) -> dict[str, int]:
    """Driver name → major of /proc/devices, character devices only."""
    found: dict[str, int] = {}
    for line in text.partition("Block devices")[0].splitlines():
        words = line.split()
        if len(words) == 2 and words[0].isdecimal():
            found[words[1]] = int(words[0])
    return found


def bracketed(text: str) -> tuple[str | None, tuple[str, ...]]:
    """The chosen word and all words of `always [madvise] never`; a lone word is the chosen one."""
    words = text.split()
    chosen = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]")]
    plain = tuple(word.strip("[]") for word in words)
    return (chosen[0] if chosen else plain[0] if len(plain) == 1 else None), plain


def command_line(text: str) -> tuple[str, ...]:
    """Kernel parameters in order, quotes kept together; what follows `--` is the first program's."""
    words = re.findall(r'(?:[^\s"]|"[^"]*")+', text)
    return tuple(words[: words.index("--")] if "--" in words else words)
