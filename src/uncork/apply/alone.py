"""The host's lock with the errors that a person sees."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uncork.apply.lock import LockHeld, locked
from uncork.errors import Locked, StateUnwritable

WAIT_S = 30.0


@contextmanager
def alone(folder: Path, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Write to the host alone. Raises `Locked`, which names the holder, or `StateUnwritable`."""
    lock = locked(folder, wait_s=wait_s)
    try:
        lock.__enter__()
    except LockHeld as held:
        raise Locked(
            f"Another uncork writes to this host ({held.holder}); nothing was changed.",
            next="uncork plan (shows what runs), then try again",
        ) from held
    except OSError as error:
        raise StateUnwritable(
            f"The lock cannot be taken ({error}); nothing was changed.",
            next="run as root, or set UNCORK_STATE",
        ) from error
    try:
        yield
    finally:
        lock.__exit__(None, None, None)
