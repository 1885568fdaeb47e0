"""Where state lives, and how a file is replaced whole."""

import os
from pathlib import Path

from uncork.errors import StateUnwritable


def patience() -> float:
    """How many times longer than usual to wait for this machine: `UNCORK_PATIENCE`, 1 where it is not set.

    For hosts that are emulated or drowned in other work; a deadline says that something hangs, not that it is slow.
    """
    try:
        return max(1.0, float(os.environ.get("UNCORK_PATIENCE", "1")))
    except ValueError:
        return 1.0


def state_dir() -> Path:
    """The folder of the database, records and evidence, made if missing.

    `UNCORK_STATE` wins, then /var/lib/uncork for root, then the XDG state folder. Raises `StateUnwritable`.
    """
    named = os.environ.get("UNCORK_STATE")
    if named:
        folder = Path(named)
    elif os.geteuid() == 0:
        folder = Path("/var/lib/uncork")
    else:
        folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "uncork"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateUnwritable(
            f"The state folder {folder} cannot be made ({error.strerror}); nothing was changed.",
            next="set UNCORK_STATE to a folder that you may write",
        ) from error
    return folder


def write_whole(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Write beside, sync, rename over, sync the folder: a reader sees the old file or the new one.

    `mode` holds less the umask. Raises `OSError`: the caller knows what was not done.
    """
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
