"""The one database file, opened as its rules need it. Standard library only: revert.py runs a copy of it.

Every write to it passes `immediate`, and `point` is called before and after each step that a crash could
separate; a test puts a function there that kills the process at the n-th call.
"""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

BUSY_TIMEOUT_S = 30.0
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def _no_crash(name: str) -> None:
    """Where nobody injects crashes."""


point: Callable[[str], None] = _no_crash


def reached(name: str) -> None:
    """A place where a crash would leave something half done."""
    point(name)


def connect(path: str | Path, *, create: bool = False) -> sqlite3.Connection:
    """Open the database: write-ahead log, each commit synced. Raises sqlite3.Error.

    `synchronous=FULL` because with NORMAL the last commits may be lost at power loss (SQLite, "PRAGMA
    synchronous"), and an intent that is not on disk is no intent.
    """
    path = Path(path)
    if create and not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        sync_folder(path.parent)
    db = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S
    )
    db.row_factory = sqlite3.Row
    try:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "recursive_triggers=ON"):
            db.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        db.close()
        raise
    return db


@contextmanager
def immediate(db: sqlite3.Connection) -> Iterator[None]:
    """One write transaction, taken at once so that two writers queue instead of failing in the middle."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        reached("before-commit")
        db.execute("COMMIT")
        reached("after-commit")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        reached("before-folder-sync")
        os.fsync(handle)
        reached("after-folder-sync")
    finally:
        os.close(handle)


def boot_id() -> str:
    """The kernel's name for this boot."""
    return BOOT_ID_FILE.read_text(encoding="ascii").strip()


def boot_ns() -> int:
    """Nanoseconds since boot, suspend included; never the wall clock, which people set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def start_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where there is no such process.

    With the pid it names a process for ever; field 22 of /proc/PID/stat, counted after the name's bracket.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])
