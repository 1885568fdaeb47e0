"""Keep what was proven: write boot files, journalled like any change, and take them away again.

Each file: its before-image and the hash of the new text are durable first, then a new file is written beside
it, synced and renamed into place. Undo restores bytes, owner and mode, and only where the file is still ours.
"""

import base64
import hashlib
import json
import os
import pwd
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from uncork.apply import boot_files, chain
from uncork.apply.alone import alone
from uncork.errors import Conflict, NotPermitted
from uncork.knobs import knobs_at, owners
from uncork.model.plan import PlannedChange
from uncork.plan import database
from uncork.plan.database import reached, sync_folder
from uncork.plan.store import Store

NEW_FILE = {"mode": 0o644, "uid": 0, "gid": 0}


class FileEnd(msgspec.Struct, frozen=True):
    """What came of one file: written, same, restored, removed, noop, drift or failed."""

    path: str
    end: str
    says: str = ""


def kept(store: Store) -> list[PlannedChange]:
    """The changes that are in force and confirmed in this boot, in the order they were written."""
    rows = store.db.execute(
        "SELECT j.body FROM journal j JOIN hold h ON h.txn = j.txn WHERE h.state = 'confirmed'"
        " AND h.boot_id = ? AND j.kind = 'intent' AND EXISTS(SELECT 1 FROM journal a"
        " WHERE a.txn = j.txn AND a.kind = 'applied' AND a.ord = j.ord) ORDER BY j.seq",
        (database.boot_id(),),
    )
    bodies = [json.loads(row["body"]) for row in rows]
    return [PlannedChange(b["knob"], b["target"], b["want"], before=b["before"]) for b in bodies]


def draft(store: Store, *, root: str = "/") -> boot_files.Draft:
    """The files that would keep what is in force; reads the host, writes nothing."""
    place = root.rstrip("/")
    found = owners.running(place, "tuned")
    match = re.search(r"profile ([^)]+)", found[0]) if found else None
    return boot_files.draft(
        kept(store),
        tuned=match[1] if match else ("balanced" if found else ""),
        service_of=lambda pid: service_of(pid, place),
        user_of=lambda pid: user_of(pid, place),
        knobs=knobs_at(root),
        root=place,
    )


def service_of(pid: int, root: str = "") -> str:
    """The system service that a process belongs to, by its cgroup; empty where it is none."""
    try:
        text = Path(f"{root}/proc/{pid}/cgroup").read_text(encoding="utf-8")
    except OSError:
        return ""
    units = re.findall(r"/system\.slice/(?:.*/)?([^/\n]+\.service)", text)
    return str(units[-1]) if units else ""


def user_of(pid: int, root: str = "") -> str:
    """The user that a process runs as; empty where that cannot be told."""
    try:
        return pwd.getpwuid(os.stat(f"{root}/proc/{pid}").st_uid).pw_name
    except (OSError, KeyError):
        return ""


def write(
    store: Store, files: dict[str, str], *, root: str = "/", actor: dict[str, Any] | None = None
) -> list[FileEnd]:
    """Write the files. Raises `Conflict` where one is there that is not ours, `NotPermitted`, `Locked`."""
    place, who, txn = root.rstrip("/"), actor or chain.actor(), secrets.token_hex(6)
    with _writing_files(store):
        ours = {row["path"]: row["after_sha256"] for row in _written(store)}
        ends = []
        drafts = {path: text for path, text in files.items() if _now(place + path) != _sha(text.encode())}
        for path in drafts:
            if (now := _now(place + path)) is not None and ours.get(path) != now:
                raise Conflict(
                    f"{path} is there and was not written by uncork; no file was written.",
                    next=f"move {path} away, or put its settings elsewhere",
                )
        for path in files:
            if path not in drafts:
                ends.append(FileEnd(path, "same"))
                continue
            text = drafts[path].encode()
            with store.writing() as db:
                before = _image(place + path)
                body = {"path": path, "before": before, "after_sha256": _sha(text), "actor": who}
                chain.append(db, txn, "file_intent", body)
            _replace(Path(place + path), text, before or NEW_FILE)
            with store.writing() as db:
                chain.append(db, txn, "file_written", {"path": path, "actor": who})
            ends.append(FileEnd(path, "written"))
    return ends


def undo(store: Store, *, root: str = "/", actor: dict[str, Any] | None = None) -> list[FileEnd]:
    """Take the files away, or restore what they replaced, newest first, where they are still as we wrote them."""
    place, who, txn = root.rstrip("/"), actor or chain.actor(), secrets.token_hex(6)
    ends = []
    with _writing_files(store):
        first: dict[str, dict[str, Any]] = {}
        for row in _written(store):
            # Written twice: the image of the first time is what was there before us.
            first[row["path"]] = first.get(row["path"], row) | {"after_sha256": row["after_sha256"]}
        for path, row in reversed(first.items()):
            end = _undo_file(Path(place + path), row)
            with store.writing() as db:
                body = {"path": path, "end": end.end, "says": end.says, "actor": who}
                chain.append(db, txn, "file_undone", body)
            ends.append(end)
    return ends


def _undo_file(path: Path, row: dict[str, Any]) -> FileEnd:
    now, before = _now(str(path)), row["before"]
    was = _sha(base64.b64decode(before["bytes"])) if before else None
    if now == was:
        return FileEnd(row["path"], "noop")
    if now != row["after_sha256"]:
        return FileEnd(row["path"], "drift", "someone else has changed it since; left alone")
    try:
        if before is None:
            reached("before-unlink")
            path.unlink()
            reached("after-unlink")
            sync_folder(path.parent)
            return FileEnd(row["path"], "removed")
        _replace(path, base64.b64decode(before["bytes"]), before)
    except OSError as error:
        return FileEnd(row["path"], "failed", str(error))
    return FileEnd(row["path"], "restored")


def _written(store: Store) -> list[dict[str, Any]]:
    """The file intents that no undo has ended, oldest first."""
    rows = store.db.execute(
        "SELECT kind, body FROM journal WHERE kind IN ('file_intent', 'file_undone') ORDER BY seq"
    )
    live: list[dict[str, Any]] = []
    for row in rows:
        body = json.loads(row["body"])
        if row["kind"] == "file_intent":
            live.append(body)
        elif body["end"] in ("removed", "restored", "noop"):
            live = [one for one in live if one["path"] != body["path"]]
    return live


@contextmanager
def _writing_files(store: Store) -> Iterator[None]:
    """The host's lock; what the file system refuses becomes the error that a person sees."""
    with alone(store.folder):
        try:
            yield
        except OSError as error:
            raise NotPermitted(
                f"{error.filename or 'A file'} cannot be written ({error.strerror}); it is as it was.",
                next="run as root, then uncork persist again",
            ) from error


def _sha(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _now(path: str) -> str | None:
    try:
        return _sha(Path(path).read_bytes())
    except FileNotFoundError:
        return None


def _image(path: str) -> dict[str, Any] | None:
    """Bytes, mode and owner of a file, as JSON; None where there is none."""
    try:
        seen, text = os.stat(path), Path(path).read_bytes()
    except FileNotFoundError:
        return None
    return {
        "bytes": base64.b64encode(text).decode("ascii"),
        "mode": stat.S_IMODE(seen.st_mode),
        "uid": seen.st_uid,
        "gid": seen.st_gid,
    }


def _replace(path: Path, text: bytes, like: dict[str, Any]) -> None:
    """Write beside, sync, rename into place, sync the folder: at no moment is there half a file."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.uncork-new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        reached("before-file-write")
        os.write(handle, text)
        os.fchmod(handle, like["mode"])
        if os.geteuid() == 0:
            os.fchown(handle, like["uid"], like["gid"])
        reached("before-file-sync")
        os.fsync(handle)
    finally:
        os.close(handle)
    reached("before-rename")
    os.rename(draft, path)
    reached("after-rename")
    sync_folder(path.parent)
