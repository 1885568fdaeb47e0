"""The record's file: sealed before the first write, finished afterwards, its sealed bytes never changed."""

import hashlib
from pathlib import Path

from uncork.errors import Corrupt, StateUnwritable
from uncork.state import write_whole

NAME = "system-improve.md"
_MARK = b"<!-- uncork: end of the sealed part, sha256 "


def seal(path: Path, text: str) -> str:
    """Write the sealed part and return its SHA-256; durable when this returns. Raises `StateUnwritable`."""
    data = text.rstrip("\n").encode() + b"\n"
    _replace(path, data)
    return hashlib.sha256(data).hexdigest()


def finish(path: Path, text: str) -> None:
    """Append the finished part below the sealed one (again: replace it). Raises `Corrupt`, `StateUnwritable`."""
    sealed, _ = split(path)
    digest = hashlib.sha256(sealed).hexdigest().encode()
    _replace(path, sealed + b"\n" + _MARK + digest + b" -->\n\n" + text.rstrip("\n").encode() + b"\n")


def verify(path: Path, sha256: str) -> None:
    """Raise `Corrupt` unless the sealed part is byte for byte what was sealed."""
    sealed, said = split(path)
    found = hashlib.sha256(sealed).hexdigest()
    if found != sha256 or said not in ("", sha256):
        raise Corrupt(
            f"The sealed part of {path} is not what was sealed (sha256 {found[:16]}…, sealed {sha256[:16]}…).",
            next="compare it with a copy; uncork journal verify tells whether the journal is whole",
        )


def split(path: Path) -> tuple[bytes, str]:
    """The sealed bytes, and the hash that the mark below them names (empty while unfinished)."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Corrupt(f"The record {path} cannot be read ({error.strerror}).") from error
    sealed, mark, rest = data.partition(b"\n" + _MARK)
    if not mark:
        return data, ""
    return sealed, rest.partition(b" ")[0].decode("ascii", "replace")


def _replace(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, data)
    except OSError as error:
        raise StateUnwritable(
            f"The record {path} cannot be written ({error.strerror}); nothing was changed on the host.",
            next="free space there, or set UNCORK_STATE to another folder",
        ) from error
