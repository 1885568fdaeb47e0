"""Example hosts: a JSON file says what a machine answers and what the audit must say about it.

    {"files": {path: text},              a file; its folders follow
     "links": {path: target},            a symbolic link, target absolute
     "runs": {"lspci -tv": {"rc": 0, "stdout": ""}},
     "queries": {source: json},
     "expect": {"check-id": "fail" | {subject: answer}}}

"attached": true makes it a pile of attachments, where what is missing is unknown instead of absent.
"base" names a file of tests/hosts/base whose entries come first; null takes one of them away.

A file's text may also be a list of lines, {"unknown": why} for one that refuses, {"hex": bytes} for a binary
one, or {"samples": [text, text]} for a counter that moves. A run may be the text it prints, or
{"unknown": why}. {subject: answer} names every subject of the check.
"""

import fnmatch
import json
from functools import cached_property
from pathlib import Path
from typing import Any

from uncork.host import Output
from uncork.model.unknown import Unknown

HERE = Path(__file__).parent


def _joined(value: Any) -> str:
    return "".join(f"{line}\n" for line in value) if isinstance(value, list) else value


class DictHost:
    """A host that answers from dictionaries; what they do not hold is absent."""

    live = False

    def __init__(
        self,
        files: dict[str, Any] | None = None,
        *,
        links: dict[str, str] | None = None,
        runs: dict[str, Any] | None = None,
        queries: dict[str, Any] | None = None,
        attached: bool = False,
        name: str = "example",
    ) -> None:
        self.name = name
        self.files = files or {}
        self.links = links or {}
        self.runs = runs or {}
        self.queries = queries or {}
        self.attached = attached

    @cached_property
    def _folders(self) -> dict[str, set[str]]:
        """Every folder that some file or link implies, with the names in it."""
        folders: dict[str, set[str]] = {"/": set()}
        for path in [*self.files, *self.links, *self.links.values()]:
            while path != "/":
                folder, _, name = path.rpartition("/")
                folders.setdefault(folder or "/", set()).add(name)
                path = folder or "/"
        return folders

    def _resolve(self, path: str) -> str:
        for _ in range(20):
            parts = path.split("/")
            for end in range(2, len(parts) + 1):
                if target := self.links.get("/".join(parts[:end])):
                    path = "/".join([target, *parts[end:]])
                    break
            else:
                return path
        raise AssertionError(f"links of {path} go round")

    def _missing(self, reason: str) -> Unknown:
        return Unknown("not among the attached files") if self.attached else Unknown(reason, absent=True)

    def _there(self, path: str) -> bool:
        path = self._resolve(path)
        return path in self.files or path in self._folders

    def read_bytes(self, path: str, *, sample: int = 1) -> bytes | Unknown:
        value = self.files.get(self._resolve(path))
        if value is None:
            return self._missing(f"{path}: No such file or directory")
        if isinstance(value, dict) and "samples" in value:
            value = value["samples"][sample - 1]
        if isinstance(value, dict) and "unknown" in value:
            return Unknown(f"{path}: {value['unknown']}")
        if isinstance(value, dict):
            return bytes.fromhex(value["hex"])
        return _joined(value).encode()

    def read(self, path: str, *, sample: int = 1) -> str | Unknown:
        data = self.read_bytes(path, sample=sample)
        return data if isinstance(data, Unknown) else data.decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...] | Unknown:
        names = self._folders.get(self._resolve(path.rstrip("/") or "/"))
        if names is None:
            return self._missing(f"{path}: No such file or directory")
        return tuple(sorted(names))

    def glob(self, pattern: str) -> tuple[str, ...]:
        found = [""]
        for part in pattern.split("/")[1:]:
            if not any(sign in part for sign in "*?["):
                found = [f"{base}/{part}" for base in found if self._there(f"{base}/{part}")]
                continue
            found = [
                f"{base}/{name}"
                for base in found
                for name in self._folders.get(self._resolve(base) or "/", ())
                if fnmatch.fnmatchcase(name, part) and not (name.startswith(".") and part[0] != ".")
            ]
        return tuple(sorted(found))

    def link(self, path: str) -> str | Unknown:
        folder, _, name = path.rpartition("/")
        target = self.links.get(f"{self._resolve(folder)}/{name}") or self.links.get(path)
        if target is None:
            return Unknown(f"{path}: not a link", absent=not self._there(path))
        # Namespace links (/proc/self/ns/user) lead to a name that is no path.
        return self._resolve(target)

    def exists(self, path: str) -> bool | Unknown:
        return self._there(path) or (self._missing("") if self.attached else False)

    def run(self, argv: tuple[str, ...], *, timeout_s: float = 10.0) -> Output | Unknown:
        value = self.runs.get(" ".join(argv))
        if value is None:
            return self._missing(f"{argv[0]} is not installed")
        if isinstance(value, str | list):
            value = {"stdout": value}
        if "unknown" in value:
            return Unknown(value["unknown"])
        return Output(value.get("rc", 0), _joined(value.get("stdout", "")), value.get("stderr", ""))

    def query(self, source: str) -> object | Unknown:
        if source not in self.queries:
            return self._missing(f"no such source: {source}")
        value = self.queries[source]
        return Unknown(value["unknown"]) if isinstance(value, dict) and "unknown" in value else value


def load(path: Path) -> tuple[DictHost, dict[str, Any]]:
    """The host of an example file, and what the audit must answer on it."""
    example = json.loads(path.read_text(encoding="utf-8"))
    expect = example.pop("expect")
    parts = with_base(example)
    return DictHost(**parts, attached=example.get("attached", False), name=path.stem), expect


def with_base(example: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The files, links, runs and queries of an example over those of its base."""
    below: dict[str, dict[str, Any]] = {}
    if "base" in example:
        below = with_base(json.loads((HERE / "base" / f"{example['base']}.json").read_text(encoding="utf-8")))
    return {
        part: {
            key: value
            for key, value in (below.get(part, {}) | example.get(part, {})).items()
            if value is not None
        }
        for part in ("files", "links", "runs", "queries")
    }
