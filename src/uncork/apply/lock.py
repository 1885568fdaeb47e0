"""One uncork writes to a host at a time: kernel locks that die with their holder. Standard library only."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HOST_LOCKS = Path("/run/uncork")
POLL_S = 0.05
# Where we, as root, may not make a file under /run, no other uncork there holds one.
NO_HOST_LOCK = (errno.EROFS, errno.EACCES, errno.EPERM)


class LockHeld(Exception):
    """Another process holds the lock; `holder` says which, as far as it wrote it down."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def host_lock(name: str) -> Path | None:
    """The host's own lock, whatever the state folder; None for those who are not root and write nothing there.

    `UNCORK_RUN` names another folder: for tests that stand for several hosts on one machine.
    """
    return Path(os.environ.get("UNCORK_RUN") or HOST_LOCKS) / name if os.geteuid() == 0 else None


@contextmanager
def locked(folder: Path, *, name: str = "lock", wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of the state folder, and as root that of the host.

    Raises `LockHeld` where another still holds one after `wait_s`, OSError where it cannot be. A child forked
    meanwhile shares the locks, so one left behind in a hung write goes on holding them.
    """
    end_s, host = time.monotonic() + wait_s, host_lock(name)
    with ExitStack() as taken:
        taken.enter_context(_held(_open(folder / name), folder, end_s))
        if host and (handle := _open_host(host)) is not None:
            taken.enter_context(_held(handle, folder, end_s))
        yield


def _open(path: Path) -> int:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _open_host(path: Path) -> int | None:
    try:
        return _open(path)
    except OSError as error:
        if error.errno in NO_HOST_LOCK:
            return None
        raise


@contextmanager
def _held(handle: int, folder: Path, end_s: float) -> Iterator[None]:
    try:
        _take(handle, end_s)
        os.ftruncate(handle, 0)
        holder = {"pid": os.getpid(), "since": time.time(), "state": str(folder)}
        os.pwrite(handle, json.dumps(holder).encode(), 0)
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
        state = f", its state in {held['state']}" if "state" in held else ""
        return f"process {held['pid']}, for {max(0, time.time() - held['since']):.0f} s{state}"
    except (ValueError, KeyError):
        return "a process that has not said who it is"
