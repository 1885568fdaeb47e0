"""How audit, explain and snapshot look at a host: which one, with what progress, and what may be shown of it."""

import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uncork.host import Host
    from uncork.host.recording import RecordingHost
    from uncork.model.findings import Audit


def host_of(paths: Sequence[Path]) -> "tuple[Host, tuple[str, ...]]":
    """This machine without paths, else a recorded one or attachments; and what could not be read of them.

    Raises `BadInput` for a path that is not there and `Corrupt` for a damaged snapshot.
    """
    from uncork.errors import BadInput
    from uncork.host.attached import AttachedHost
    from uncork.host.live import LiveHost
    from uncork.host.snapshot import SnapshotHost, is_snapshot

    if not paths:
        return LiveHost(), ()
    for path in paths:
        if not path.exists():
            raise BadInput(
                f"{path} does not exist; nothing was audited.", next="name files or folders that exist"
            )
    recorded = [path for path in paths if path.is_file() and is_snapshot(path)]
    if recorded and len(paths) > 1:
        raise BadInput(
            f"{recorded[0]} is a whole snapshot and cannot be mixed with other files; nothing was audited.",
            next=f"uncork audit --snapshot {recorded[0]}",
        )
    if recorded:
        return SnapshotHost(recorded[0]), ()
    attached = AttachedHost(paths)
    return attached, attached.left_out


def look(paths: Sequence[Path]) -> "tuple[Audit, RecordingHost, tuple[str, ...]]":
    """Audit a host with progress on a terminal; identifiers in what it says are replaced (host/redact.py)."""
    from uncork.audit import audit
    from uncork.host.recording import RecordingHost

    inner, left_out = host_of(paths)
    host = RecordingHost(inner)
    with Progress() as progress:
        found = audit(host, progress=progress)
    return shown(found), host, left_out


def shown(audit: "Audit") -> "Audit":
    """The audit without serial numbers, MACs and UUIDs, in the order that gives."""
    import msgspec

    from uncork.audit import rank
    from uncork.host.redact import text
    from uncork.model.findings import Audit, Result

    plain = msgspec.convert(_cleaned(msgspec.to_builtins(audit), text), Audit)
    results: tuple[Result, ...] = tuple(sorted(plain.results, key=rank))
    return msgspec.structs.replace(plain, results=results)


def _cleaned(value: object, text: "object") -> object:
    if isinstance(value, str):
        return text(value)  # type: ignore[operator]
    if isinstance(value, dict):
        return {key: _cleaned(item, text) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item, text) for item in value]
    return value


class Progress:
    """One moving line on stderr while explorers run, only where a person looks; gone when they are done."""

    def __init__(self) -> None:
        self._moving = sys.stderr.isatty()
        self._running: dict[str, None] = {}
        self._done = 0
        self._lock = threading.Lock()

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._moving:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()

    def __call__(self, name: str, state: str) -> None:
        if not self._moving:
            return
        with self._lock:
            if state == "running":
                self._running[name] = None
            else:
                self._running.pop(name, None)
                self._done += 1
            names = ", ".join(one.replace("_", " ") for one in self._running)
            sys.stderr.write(f"\r\x1b[2K  looking: {self._done} done, at {names}"[:90])
            sys.stderr.flush()
