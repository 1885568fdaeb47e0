"""Where state lives."""

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
