"""A recorded host: every question an audit asked and its answer, as one tar.zst.

    manifest.json   {"schema": 1, "version": …, "host": …, "answers": how many, "sha256": of answers.jsonl}
    answers.jsonl   one line a question: {"ask": ["read", "/proc/cmdline", "1"], "text": …} and its like

Nothing is unpacked to disk on reading; sizes are bounded, only the two members are looked at.
"""

import base64
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uncork import __version__
from uncork.errors import BadInput, Corrupt
from uncork.host import Output, redact
from uncork.host.gather import LIMITS
from uncork.host.redact import Names
from uncork.model.unknown import Unknown
from uncork.state import write_whole

SCHEMA = 1
MAGIC = b"\x28\xb5\x2f\xfd"
MANIFEST, ANSWERS = "manifest.json", "answers.jsonl"
Key = tuple[str, ...]


def _encoded(value: Any) -> dict[str, Any]:
    if isinstance(value, Unknown):
        return {"unknown": value.reason, **({"absent": True} if value.absent else {})}
    if isinstance(value, bytes):
        try:
            return {"text": value.decode()}
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, Output):
        return {"rc": value.rc, "stdout": value.stdout, "stderr": value.stderr}
    return {"value": value}


def _decoded(kind: str, line: dict[str, Any]) -> Any:
    if "unknown" in line:
        return Unknown(str(line["unknown"]), absent=bool(line.get("absent")))
    if "base64" in line:
        return base64.b64decode(line["base64"])
    if "stdout" in line:
        return Output(int(line["rc"]), str(line["stdout"]), str(line["stderr"]))
    if "text" in line:
        return str(line["text"]).encode()
    value = line["value"]
    return tuple(value) if kind in ("list", "glob") else value


def save(
    answers: Mapping[Key, Any],
    host: str,
    to: Path,
    *,
    names: Names | None = None,
    extra: Mapping[str, Any] | None = None,
) -> int:
    """Write a snapshot and return its size in bytes; the file appears whole or not at all. Raises `BadInput`."""
    import zstandard

    lines = []
    for key in sorted(answers):
        answer = answers[key]
        if not isinstance(answer, Unknown):
            answer = redact.when_stored(key[0], key[1], answer)
        line = json.dumps({"ask": list(key), **_encoded(answer)}, ensure_ascii=False)
        lines.append(names.text(line) if names else line)
    body = "".join(f"{line}\n" for line in lines).encode()
    manifest = {
        "schema": SCHEMA,
        "version": __version__,
        "host": names.host if names else host,
        "answers": len(lines),
        "sha256": hashlib.sha256(body).hexdigest(),
        **(extra or {}),
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in ((MANIFEST, (json.dumps(manifest, indent=1) + "\n").encode()), (ANSWERS, body)):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o600
            tar.addfile(member, io.BytesIO(data))
    packed = zstandard.ZstdCompressor(level=9).compress(archive.getvalue())
    _write(to, packed)
    return len(packed)


def _write(to: Path, data: bytes) -> None:
    try:
        write_whole(to, data)
    except OSError as error:
        raise BadInput(
            f"{to} cannot be written ({error.strerror}); no snapshot was stored.",
            next="choose another -o FILE",
        ) from error


def is_snapshot(path: Path) -> bool:
    """Whether the file is one of ours (a zstd tar whose first member is the manifest)."""
    try:
        with open(path, "rb") as file:
            if file.read(4) != MAGIC:
                return False
            file.seek(0)
            import zstandard

            head = zstandard.ZstdDecompressor().stream_reader(file).read(512)
    except (OSError, zstandard.ZstdError):
        return False
    return bytes(head[: len(MANIFEST)]) == MANIFEST.encode()


def _members(path: Path) -> dict[str, bytes]:
    import zstandard

    found: dict[str, bytes] = {}
    try:
        with open(path, "rb") as file:
            data = zstandard.ZstdDecompressor().stream_reader(file).read(LIMITS.total_bytes + 1)
        if len(data) > LIMITS.total_bytes:
            raise BadInput(f"{path} unpacks to more than {LIMITS.total_bytes} bytes; it was not read.")
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for number, member in enumerate(tar):
                if number >= 16:
                    break
                stream = (
                    tar.extractfile(member) if member.isreg() and member.name in (MANIFEST, ANSWERS) else None
                )
                if stream is not None:
                    found[member.name] = stream.read()
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror or error}); nothing was audited.") from error
    except (zstandard.ZstdError, tarfile.TarError, ValueError) as error:
        raise Corrupt(f"{path} is not a snapshot that can be read ({error}); nothing was audited.") from error
    return found


class SnapshotHost:
    """Answers from a snapshot; a question that nobody asked then is Unknown. Raises `BadInput`, `Corrupt`."""

    live = True  # it answers as the machine did: what was not there is absent

    def __init__(self, path: Path) -> None:
        members = _members(path)
        try:
            manifest = json.loads(members[MANIFEST])
            body = members[ANSWERS]
            if manifest["schema"] != SCHEMA:
                raise BadInput(
                    f"{path} was written by uncork {manifest.get('version')} with schema {manifest['schema']}; "
                    f"this one reads {SCHEMA}.",
                    next="use the uncork that wrote it, or take the snapshot again",
                )
            if hashlib.sha256(body).hexdigest() != manifest["sha256"]:
                raise Corrupt(f"{path}: the answers do not match their hash; nothing was audited.")
            self.manifest: dict[str, Any] = manifest
            self._answers = _answers(body)
            self._name = str(manifest["host"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise Corrupt(
                f"{path} does not hold what a snapshot holds ({error!r}); nothing was audited."
            ) from error

    @property
    def name(self) -> str:
        return self._name

    def _get(self, *key: str) -> Any:
        if key not in self._answers:
            return Unknown(f"{' '.join(key[1:])}: not recorded in this snapshot")
        return self._answers[key]

    def read_bytes(self, path: str, *, sample: int = 1) -> bytes | Unknown:
        answer: bytes | Unknown = self._get("read", path, str(sample))
        return answer

    def read(self, path: str, *, sample: int = 1) -> str | Unknown:
        data = self.read_bytes(path, sample=sample)
        return data if isinstance(data, Unknown) else data.decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...] | Unknown:
        answer: tuple[str, ...] | Unknown = self._get("list", path)
        return answer

    def glob(self, pattern: str) -> tuple[str, ...]:
        answer = self._get("glob", pattern)
        return () if isinstance(answer, Unknown) else answer

    def link(self, path: str) -> str | Unknown:
        answer: str | Unknown = self._get("link", path)
        return answer

    def exists(self, path: str) -> bool | Unknown:
        answer: bool | Unknown = self._get("exists", path)
        return answer

    def run(self, argv: tuple[str, ...], *, timeout_s: float = 10.0) -> Output | Unknown:
        answer: Output | Unknown = self._get("run", *argv)
        return answer

    def query(self, source: str) -> object | Unknown:
        answer: object | Unknown = self._get("query", source)
        return answer


def _answers(body: bytes) -> dict[Key, Any]:
    found: dict[Key, Any] = {}
    for line in body.decode("utf-8", "replace").split("\n"):
        if line:
            read = json.loads(line)
            key = tuple(str(word) for word in read["ask"])
            found[key] = _decoded(key[0], read)
    return found
