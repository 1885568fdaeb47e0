"""A kernel made of plain files: writes go through rules that clamp, canonicalise, ignore, refuse or vanish.

It stands at the system call (os.write, os.pwrite), so the code under test is the code that runs on a host.
"""

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

Rule = Callable[
    [str, str], str
]  # present text, written text -> text that the file then has; may raise OSError


class FakeKernel:
    """Files under `root`, each with a rule for what a write does to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.rules: dict[str, Rule] = {}
        self.byte_rules: dict[str, Callable[[int, bytes, Callable[[int, bytes], None]], None]] = {}
        self.writes: list[tuple[str, str]] = []
        self._write, self._pwrite = os.write, os.pwrite

    def install(self, monkeypatch) -> "FakeKernel":
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "pwrite", self.pwrite)
        return self

    def file(self, path: str, text: str, rule: Rule | None = None) -> None:
        full = self.root / path.lstrip("/")
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")
        if rule:
            self.rules[path] = rule

    def text(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text(encoding="utf-8")

    def put(self, path: str, text: str) -> None:
        (self.root / path.lstrip("/")).write_text(text, encoding="utf-8")

    def vanish(self, path: str) -> None:
        (self.root / path.lstrip("/")).unlink()

    def _path(self, handle: int) -> str:
        return os.readlink(f"/proc/self/fd/{handle}").removeprefix(str(self.root))

    def write(self, handle: int, data: bytes) -> int:
        path = self._path(handle)
        if not path.startswith(("/proc", "/sys")):
            return self._write(handle, data)
        self.writes.append((path, data.decode()))
        was = self.text(path)
        self.put(path, self.rules.get(path, plain)(was, data.decode()))
        return len(data)

    def pwrite(self, handle: int, data: bytes, offset: int) -> int:
        path = self._path(handle)
        self.writes.append((path, f"{offset:#x}={data[::-1].hex()}"))
        rule = self.byte_rules.get(path, lambda at, what, put: put(at, what))
        rule(offset, data, lambda at, what: self._pwrite(handle, what, at) and None)
        return len(data)


def plain(was: str, new: str) -> str:
    """Takes what is written."""
    return new


def clamp(low: int, high: int) -> Rule:
    return lambda was, new: f"{max(low, min(high, int(new)))}\n"


def tabs(was: str, new: str) -> str:
    """Lists come back with tabs, numbers without zeros in front (proc_dointvec)."""
    return "\t".join(str(int(word)) for word in new.split()) + "\n"


def ignore(was: str, new: str) -> str:
    return was


def refuse(code: int) -> Rule:
    def rule(was: str, new: str) -> str:
        raise OSError(code, os.strerror(code))

    return rule


def times(count: int, code: int, then: Rule = plain) -> Rule:
    """Refuses the first `count` writes."""
    left = [count]

    def rule(was: str, new: str) -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(code, os.strerror(code))
        return then(was, new)

    return rule


def choice(was: str, new: str) -> str:
    """One word of a list in brackets; any other word is EINVAL (sysfs_match_string)."""
    words = was.replace("[", "").replace("]", "").split()
    if new.strip() not in words:
        raise OSError(errno.EINVAL, "Invalid argument")
    return " ".join(f"[{word}]" if word == new.strip() else word for word in words) + "\n"


EXPRESS_AT, ACS_AT = 0x60, 0x148


def config(
    *, vendor: int = 0x10DE, control: int = 0x2810, status: int = 0, acs: int | None = None, size: int = 4096
) -> bytes:
    """Config space of a PCI Express function with MaxReadReq 512 unless `control` says otherwise."""
    space = bytearray(size)
    struct.pack_into("<HHHH", space, 0, vendor, 0x2BB5, 0x0006, 0x0010)
    space[0x34] = 0x40
    space[0x40:0x42] = bytes((0x01, EXPRESS_AT))  # power management, then Express
    if size > 64:
        space[EXPRESS_AT : EXPRESS_AT + 2] = bytes((0x10, 0))
        struct.pack_into("<HH", space, EXPRESS_AT + 8, control, status)
    if acs is not None:
        struct.pack_into("<I", space, 0x100, 0x0001 | 1 << 16 | ACS_AT << 20)  # AER, then ACS
        struct.pack_into("<IHH", space, ACS_AT, 0x000D | 1 << 16, 0x005F, acs)
    return bytes(space)


class FakePci:
    """Two bridges and an endpoint below them: 80:00.0, 81:00.0, 82:00.0."""

    PORT, SWITCH, GPU = "0000:80:00.0", "0000:81:00.0", "0000:82:00.0"

    def __init__(self, kernel: FakeKernel) -> None:
        self.kernel = kernel
        folder = "/sys/devices/pci0000:80"
        (kernel.root / "sys/bus/pci/devices").mkdir(parents=True)
        for name, space in (
            (self.PORT, config(vendor=0x8086, acs=0x1D)),
            (self.SWITCH, config(vendor=0x104C, acs=0x1D)),
            (self.GPU, config(acs=None)),
        ):
            folder = f"{folder}/{name}"
            path = kernel.root / folder.lstrip("/")
            path.mkdir(parents=True)
            (path / "config").write_bytes(space)
            (kernel.root / "sys/bus/pci/devices" / name).symlink_to(path)
        kernel.file("/proc/self/uid_map", "         0          0 4294967295\n")
        kernel.file("/proc/cpuinfo", "flags\t\t: fpu vme de pse\n")
        kernel.file("/proc/cmdline", "quiet\n")
        kernel.file("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n")

    def path(self, name: str) -> Path:
        return (self.kernel.root / "sys/bus/pci/devices" / name).resolve()

    def word(self, name: str, offset: int) -> int:
        return int.from_bytes((self.path(name) / "config").read_bytes()[offset : offset + 2], "little")

    def replace(self, name: str, space: bytes) -> None:
        (self.path(name) / "config").write_bytes(space)

    def on_write(self, name: str, rule: Callable[[int, bytes, Callable[[int, bytes], None]], None]) -> None:
        self.kernel.byte_rules[str(self.path(name) / "config").removeprefix(str(self.kernel.root))] = rule
