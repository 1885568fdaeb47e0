"""The journal: rows chained by hash, with who, when, what and which version. Standard library only.

A row's hash covers the hash before it and the row's canonical JSON. That shows accident and casual editing;
root can rewrite the whole chain, so its head is worth keeping elsewhere (the record's footer has it).
"""

import hashlib
import json
import os
import re
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from uncork import __version__
from uncork.plan.database import boot_id, boot_ns, reached

ZERO = "0" * 64
UNSET_LOGINUID = "4294967295"


def append(
    db: sqlite3.Connection, txn: str, kind: str, body: dict[str, Any], *, ord: int | None = None
) -> int:
    """Add a row inside the caller's transaction; its number. `ord` is the target's place in the group."""
    last = db.execute("SELECT seq, hash FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
    seq, prev = (last["seq"] + 1, last["hash"]) if last else (1, ZERO)
    body = {
        **body,
        "seq": seq,
        "txn": txn,
        "kind": kind,
        "ord": ord,
        "wall_ns": time.time_ns(),
        "boot_ns": boot_ns(),
        "boot_id": boot_id(),
        "version": __version__,
    }
    text = canonical(body)
    reached(f"before-append-{kind}")
    db.execute(
        "INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?)",
        (seq, txn, kind, ord, text, prev, digest(prev, text)),
    )
    reached(f"after-append-{kind}")
    return seq


def canonical(body: dict[str, Any]) -> str:
    """The one way to write a body: sorted keys, no spaces, plain ASCII."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(prev: str, text: str) -> str:
    """The hash of a row: SHA-256 over the hash before it, a newline and the canonical body."""
    return hashlib.sha256(f"{prev}\n{text}".encode()).hexdigest()


def head(db: sqlite3.Connection) -> tuple[int, str]:
    """Number and hash of the newest row; (0, zeros) of an empty journal."""
    last = db.execute("SELECT seq, hash FROM journal ORDER BY seq DESC LIMIT 1").fetchone()
    return (last["seq"], last["hash"]) if last else (0, ZERO)


def footer(db: sqlite3.Connection) -> str:
    """The line that a record ends with, so that the head is kept outside the journal too."""
    seq, text = head(db)
    return f"Journal head: row {seq}, {text} (`uncork journal verify` compares)\n"


def contradicts(db: sqlite3.Connection, record: str) -> str:
    """What a record's footer says against the journal, in words; empty where they agree or it has none."""
    for seq, text in re.findall(r"^Journal head: row (\d+), ([0-9a-f]{64}) ", record, re.MULTILINE):
        row = db.execute("SELECT hash FROM journal WHERE seq = ?", (int(seq),)).fetchone()
        if int(seq) and (row is None or row["hash"] != text):
            return f"row {seq} is {'missing' if row is None else 'another one'} than the record names"
    return ""


def broken(db: sqlite3.Connection) -> list[str]:
    """Every place where the chain does not hold, in words; empty where it does."""
    wrong, prev, expected = [], ZERO, 1
    for row in db.execute("SELECT * FROM journal ORDER BY seq"):
        if row["seq"] != expected:
            wrong.append(f"row {expected} is missing (the next one is {row['seq']})")
        if row["prev"] != prev:
            wrong.append(f"row {row['seq']} does not follow the row before it")
        if row["hash"] != digest(row["prev"], row["body"]):
            wrong.append(f"row {row['seq']} was changed: its hash does not match what it says")
        body = json.loads(row["body"])
        if any(body.get(name) != row[name] for name in ("seq", "txn", "kind", "ord")):
            wrong.append(f"row {row['seq']} is filed under other columns than its body says")
        prev, expected = row["hash"], row["seq"] + 1
    return wrong


def actor(kind: str = "", name: str = "") -> dict[str, Any]:
    """Who does this: `kind` is human, assistant, guard or recovery; `name` an assistant's client name.

    A process that an assistant's server started has its name in UNCORK_ASSISTANT: recorded, never trusted.
    The login uid survives su and sudo (kernel audit); 4294967295 means that none was set.
    """
    name = (name or os.environ.get("UNCORK_ASSISTANT", "")).removeprefix("assistant: ")
    return {
        "kind": kind or ("assistant" if name else "human"),
        "name": name,
        "uid": os.getuid(),
        "loginuid": _loginuid(),
        "sudo_user": os.environ.get("SUDO_USER", ""),
        "tty": _tty(),
        "ssh": os.environ.get("SSH_CONNECTION", ""),
        "pid": os.getpid(),
        "verb": next((word for word in sys.argv[1:2] if not word.startswith("-")), ""),
    }


def who(actor: dict[str, Any]) -> str:
    """An actor in a few words: `human alice (uid 0) on /dev/pts/1`."""
    name = actor.get("name") or actor.get("sudo_user") or ""
    where = actor.get("tty") or ("ssh" if actor.get("ssh") else "no terminal")
    login = actor.get("loginuid")
    return f"{actor['kind']} {name}".strip() + (
        f" (uid {actor['uid']}" + (f", login {login}" if login is not None else "") + f") on {where}"
    )


def _loginuid() -> int | None:
    try:
        text = Path("/proc/self/loginuid").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return None if text == UNSET_LOGINUID or not text else int(text)


def _tty() -> str:
    for stream in (0, 1, 2):
        try:
            return os.ttyname(stream)
        except OSError:
            continue
    return ""
