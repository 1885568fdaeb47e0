"""Files that people attach → (name, bytes): folders, compressed files and archives, opened in memory only.

An archive is never unpacked to disk, links in it are never followed, and sizes are bounded before bytes are
kept, so that a hostile one costs at most `LIMITS`.
"""

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from uncork.errors import BadInput


class Limits(msgspec.Struct, frozen=True):
    """What is read at most, in files and bytes after decompression."""

    file_bytes: int = 32 << 20
    total_bytes: int = 96 << 20
    files: int = 20_000


LIMITS = Limits()


class Attachment(msgspec.Struct, frozen=True):
    """One file: its name inside what was given (with its folders), and its bytes."""

    name: str
    data: bytes


class Pile(msgspec.Struct, frozen=True):
    """Everything gathered, and what was left out with the reason."""

    files: tuple[Attachment, ...]
    left_out: tuple[str, ...] = ()


class _Gatherer:
    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.files: list[Attachment] = []
        self.left_out: list[str] = []
        self.left_bytes = limits.total_bytes

    def full(self) -> bool:
        return len(self.files) >= self.limits.files or self.left_bytes <= 0

    def bounded(self, stream: IO[bytes], name: str) -> bytes:
        """Read at most what the limits leave; what is cut is said."""
        limit = min(self.limits.file_bytes, self.left_bytes)
        data = stream.read(limit + 1)
        if len(data) > limit:
            self.left_out.append(f"{name}: only the first {limit} bytes were read")
        return data[:limit]

    def keep(self, name: str, data: bytes) -> None:
        """Take a file, opening it first where it is itself compressed or an archive."""
        if self.full():
            self.left_out.append(f"{name}: not read, there is too much")
            return
        unpacked = self.unpack(name, data)
        if unpacked is None:
            return
        name, data = unpacked
        self.left_bytes -= len(data)
        self.files.append(Attachment(name, data))

    def unpack(self, name: str, data: bytes) -> tuple[str, bytes] | None:
        """Follow compression (thrice at most); None where it was an archive, whose files are kept."""
        for _ in range(3):
            suffix = _compression(data)
            if suffix is None:
                break
            try:
                data = self.decompress(suffix, data, name)
            except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
                self.left_out.append(f"{name}: not {suffix} that can be read ({error})")
                return None
            name = name.removesuffix("." + suffix)
        if data[257:262] == b"ustar":
            self.tar(name, data)
            return None
        if data[:4] == b"PK\x03\x04":
            self.zip(name, data)
            return None
        return name, data

    def decompress(self, suffix: str, data: bytes, name: str) -> bytes:
        source = io.BytesIO(data)
        if suffix == "gz":
            return self.bounded_partial(gzip.GzipFile(fileobj=source), name)
        if suffix == "xz":
            return self.bounded_partial(lzma.LZMAFile(source), name)
        if suffix == "bz2":
            return self.bounded_partial(bz2.BZ2File(source), name)
        import zstandard

        try:
            reader = zstandard.ZstdDecompressor().stream_reader(source)
            return self.bounded(reader, name)
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error

    def bounded_partial(self, stream: gzip.GzipFile | lzma.LZMAFile | bz2.BZ2File, name: str) -> bytes:
        """Like `bounded`, and a truncated stream gives what it holds (people cut logs to fit an upload)."""
        limit = min(self.limits.file_bytes, self.left_bytes)
        parts, size = [], 0
        try:
            while size <= limit and (part := stream.read(min(1 << 16, limit + 1 - size))):
                parts.append(part)
                size += len(part)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            if not parts:
                raise
            self.left_out.append(f"{name}: cut short ({error})")
        if size > limit:
            self.left_out.append(f"{name}: only the first {limit} bytes were read")
        return b"".join(parts)[:limit]

    def tar(self, name: str, data: bytes) -> None:
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
                for member in archive:
                    if self.full():
                        self.left_out.append(f"{name}: the rest was not read, there is too much")
                        break
                    # Links and devices are never followed; their content is elsewhere, or harmful.
                    stream = archive.extractfile(member) if member.isreg() else None
                    if stream is not None:
                        self.keep(_inside(name, member.name), self.bounded(stream, member.name))
        except (tarfile.TarError, ValueError, OSError) as error:
            self.left_out.append(f"{name}: the archive is damaged ({error})")

    def zip(self, name: str, data: bytes) -> None:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for member in archive.infolist():
                    if self.full():
                        self.left_out.append(f"{name}: the rest was not read, there is too much")
                        break
                    if not member.is_dir():
                        with archive.open(member) as stream:
                            self.keep(_inside(name, member.filename), self.bounded(stream, member.filename))
        except (
            zipfile.BadZipFile,
            RuntimeError,
            NotImplementedError,
            EOFError,
            OSError,
            zlib.error,
        ) as error:
            self.left_out.append(f"{name}: the archive is damaged ({error})")


def _compression(data: bytes) -> str | None:
    if data[:2] == b"\x1f\x8b":
        return "gz"
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return "zst"
    if data[:6] == b"\xfd7zXZ\x00":
        return "xz"
    if data[:3] == b"BZh" and data[4:10] == b"1AY&SY":
        return "bz2"
    return None


def _inside(archive: str, member: str) -> str:
    """A member's name below its archive, with nothing that could lead out of it."""
    parts = [part for part in member.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    return "/".join([Path(archive).name, *parts])


def _walk(folder: Path) -> Iterator[Path]:
    """Regular files below a folder, sorted, links not followed."""
    for here, folders, names in os.walk(folder, followlinks=False):
        folders.sort()
        for name in sorted(names):
            path = Path(here, name)
            if stat.S_ISREG(path.lstat().st_mode):
                yield path


def gather(paths: Iterable[Path], *, limits: Limits = LIMITS) -> Pile:
    """Read files and folders. Raises `BadInput` where a path that was named cannot be read."""
    gatherer = _Gatherer(limits)
    for path in paths:
        try:
            if path.is_dir():
                found = [(str(file.relative_to(path)), file) for file in _walk(path)]
            else:
                found = [(path.name, path)]
            for name, file in found:
                with open(file, "rb") as stream:
                    gatherer.keep(name, gatherer.bounded(stream, name))
        except OSError as error:
            raise BadInput(
                f"{path} cannot be read ({error.strerror or error}); nothing was audited.",
                next="name files or folders that exist and that you may read",
            ) from error
    return Pile(tuple(gatherer.files), tuple(gatherer.left_out))
