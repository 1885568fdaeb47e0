"""One uncork writes to a host at a time: a kernel lock that dies with its holder. Standard library only."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOST_STATE = Path("/var/lib/uncork")
HOST_LOCK = Path("/run/uncork/lock")
POLL_S = 0.05


class LockHeld(Exception):
    """Another process holds the lock; `holder` says which, as far as it wrote it down."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def lock_path(folder: Path) -> Path:
    """The lock of the host for the host's own state folder (tmpfs: gone at reboot); else one beside it."""
    return HOST_LOCK if folder.resolve() == HOST_STATE else folder / "lock"


@contextmanager
def locked(folder: Path, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock. Raises `LockHeld` where another still holds it after `wait_s`, OSError where it cannot be.

    A child forked meanwhile shares the lock, so one left behind in a hung write goes on holding it.
    """
    path = lock_path(folder)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _take(handle, time.monotonic() + wait_s)
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps({"pid": os.getpid(), "since": time.time()}).encode(), 0)
        yield
    finally:
        os.close(handle)


def _take(handle: int, end_s: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end_s:
                raise LockHeld(_holder(handle)) from None
            time.sleep(POLL_S)


def _holder(handle: int) -> str:
    try:
        held = json.loads(os.pread(handle, 4096, 0))
        return f"process {held['pid']}, for {max(0, time.time() - held['since']):.0f} s"
    except (ValueError, KeyError):
        return "a process that has not said who it is"
