"""One field of a 16-bit register in PCI config space. Standard library only.

Offsets and bits: PCI Express Base Specification, Device Control (capability 10h + 8) and Access Control
Services (extended capability 0Dh + 6).
"""

import contextlib
import errno
import importlib
import os
import struct
from collections.abc import Iterator
from typing import Any

Recipe = dict[str, Any]
_compare = importlib.import_module(f"{__package__}.compare")


def capabilities(handle: int) -> Iterator[tuple[int, int]]:
    """Capability ids and offsets of an open config file. Raises EACCES where only the header may be read."""
    if len(os.pread(handle, 256, 0)) < 256:
        raise PermissionError(errno.EACCES, "config space beyond 64 bytes needs root on the host")
    offset, seen = os.pread(handle, 1, 0x34)[0] & 0xFC, set[int]()
    while offset >= 0x40 and offset not in seen and len(seen) < 48:
        seen.add(offset)
        identity, following = os.pread(handle, 2, offset)
        yield identity, offset
        offset = following & 0xFC


def extended(handle: int) -> Iterator[tuple[int, int]]:
    """Extended capability ids and offsets of an open config file."""
    offset, seen = 0x100, set[int]()
    while offset >= 0x100 and offset not in seen:
        seen.add(offset)
        raw = os.pread(handle, 4, offset)
        header = struct.unpack("<I", raw)[0] if len(raw) == 4 else 0
        if header in (0, 0xFFFFFFFF):
            return
        yield header & 0xFFFF, offset
        offset = header >> 20 & 0xFFC


def word(handle: int, offset: int, path: str) -> int:
    """A 16-bit register. Raises ENODEV for all ones, which is what a device that left the bus reads as."""
    found = int(struct.unpack("<H", os.pread(handle, 2, offset))[0])
    if found == 0xFFFF:
        raise OSError(errno.ENODEV, "the device does not answer", path)
    return found


@contextlib.contextmanager
def register(recipe: Recipe, flags: int = os.O_RDONLY) -> Iterator[tuple[int, int]]:
    """The open config file and the register's offset, found by walking; the device must be the recipe's."""
    handle = os.open(recipe["path"], flags | os.O_CLOEXEC)
    try:
        identity = "{:04x}:{:04x}".format(*struct.unpack("<HH", os.pread(handle, 4, 0)))
        if identity != recipe["identity"]:
            raise OSError(errno.ENODEV, f"{identity} answers where {recipe['identity']} was", recipe["path"])
        walk = extended if recipe["extended"] else capabilities
        starts = [start for capability, start in walk(handle) if capability == recipe["capability"]]
        if not starts:
            raise OSError(errno.ENXIO, "the device has no such capability", recipe["path"])
        yield handle, starts[0] + int(recipe["offset"])
    finally:
        os.close(handle)


def _shift(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def _decode(recipe: Recipe, field: int) -> str:
    if recipe["form"] == "bits":
        return f"0x{field:02x}"
    number = field >> _shift(recipe["mask"])
    return str(128 << number if recipe["form"] == "bytes" else number)


def encode(recipe: Recipe, value: str) -> int:
    number = _compare.number(value)
    codes = {128 << code: code for code in range(6)} if recipe["form"] == "bytes" else {number: number}
    if isinstance(number, str) or number not in codes:
        raise OSError(errno.EINVAL, f"{value}: not a value of this field", recipe["path"])
    field = number if recipe["form"] == "bits" else int(codes[number]) << _shift(recipe["mask"])
    if field & ~recipe["mask"]:
        raise OSError(errno.EINVAL, f"{value}: beyond the field", recipe["path"])
    return field


def _read(recipe: Recipe) -> str:
    with register(recipe) as (handle, offset):
        return _decode(recipe, word(handle, offset, recipe["path"]) & recipe["mask"])


def _write(recipe: Recipe, value: str) -> None:
    field, never = encode(recipe, value), recipe["never"]
    with register(recipe, os.O_RDWR) as (handle, offset):
        old = word(handle, offset, recipe["path"])
        # `never`: bit 15 of Device Control starts a function-level reset, so it is 0 whatever was read.
        new = (old & ~recipe["mask"] & ~never) | field
        os.pwrite(handle, struct.pack("<H", new), offset)
        now = word(handle, offset, recipe["path"])
        if (now ^ old) & ~recipe["mask"] & ~never & 0xFFFF:
            os.pwrite(handle, struct.pack("<H", old & ~never), offset)
            raise OSError(errno.EIO, f"other bits moved ({old:04x} to {now:04x}); put back", recipe["path"])


READ = {"pci-word": _read}
WRITE = {"pci-word": _write}
