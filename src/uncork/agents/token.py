"""The token of the HTTP transport: new at every start, or kept in a file that only its owner can read."""

import os
import re
import secrets
import stat
from pathlib import Path

from uncork.errors import BadInput

_GOOD = re.compile(r"[A-Za-z0-9._~+/=-]{24,512}")


def new() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(24)


def kept(path: Path) -> str:
    """The token in the file, which is made with a new one where it is missing. Raises `BadInput`."""
    try:
        try:
            made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return _read(path)
        token = new()
        with open(made, "w", encoding="ascii") as file:
            file.write(token + "\n")
        return token
    except OSError as error:
        raise _refusal(path, f"cannot be used ({error.strerror})") from error


def _read(path: Path) -> str:
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        now = os.fstat(file.fileno())
        if not stat.S_ISREG(now.st_mode) or now.st_uid != os.geteuid() or now.st_mode & 0o077:
            raise _refusal(path, "must be a file of yours with mode 0600")
        text = file.read(1024).decode("ascii", "replace").strip()
    if not _GOOD.fullmatch(text):
        raise _refusal(path, "must hold one token of 24 or more letters, digits or ._~+/=-")
    return text


def _refusal(path: Path, why: str) -> BadInput:
    return BadInput(
        f"The token file {path} {why}; nothing was started.",
        next="remove it: the next start makes a new one, mode 0600",
    )
