"""Take the ELF kernel out of a compressed boot image: vmlinux.py BZIMAGE OUT.

Offsets of the setup header: Documentation/x86/boot.rst (setup_sects 0x1f1, payload_offset 0x248, length 0x24c).
"""

import lzma
import struct
import sys
import zlib
from pathlib import Path


def extract(image: bytes) -> bytes:
    """The decompressed payload of a bzImage (xz or gzip)."""
    sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if payload.startswith(b"\xfd7zXZ\0"):
        return lzma.LZMADecompressor().decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(payload)
    raise SystemExit(f"the kernel is compressed in a way that is not known here: {payload[:4]!r}")


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(extract(Path(sys.argv[1]).read_bytes()))
