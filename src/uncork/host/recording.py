"""A host that remembers every answer: explorers share one read, and a run can be replayed elsewhere.

Secrets are taken out of an answer here, before anybody sees it (host/redact.py).
"""

import threading
from collections.abc import Callable
from typing import Any

from uncork.host import Host, Output, redact
from uncork.model.unknown import Unknown

Key = tuple[str, ...]


class RecordingHost:
    """Asks `inner` once per question; `answers` holds everything that was asked."""

    def __init__(self, inner: Host) -> None:
        self._inner = inner
        self.answers: dict[Key, Any] = {}
        self._derived: dict[Key, Any] = {}
        self._locks: dict[Key, threading.Lock] = {}
        self._guard = threading.Lock()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def live(self) -> bool:
        return self._inner.live

    def derived(self, name: str, derive: Callable[[], Any]) -> Any:
        """What was worked out from the answers under this name: once, however many explorers ask."""
        if isinstance(self._inner, RecordingHost):
            return self._inner.derived(name, derive)
        return self._once(("derived", name), derive, self._derived)

    def _once(self, key: Key, ask: Callable[[], Any], kept: dict[Key, Any] | None = None) -> Any:
        kept = self.answers if kept is None else kept
        if key in kept:
            return kept[key]
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in kept:
                kept[key] = ask()
        return kept[key]

    def read_bytes(self, path: str, *, sample: int = 1) -> bytes | Unknown:
        key = ("read", path, str(sample))

        def ask() -> bytes | Unknown:
            data = self._inner.read_bytes(path, sample=sample)
            return data if isinstance(data, Unknown) else redact.when_read("read", path, data)

        answer: bytes | Unknown = self._once(key, ask)
        return answer

    def read(self, path: str, *, sample: int = 1) -> str | Unknown:
        data = self.read_bytes(path, sample=sample)
        return data if isinstance(data, Unknown) else data.decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...] | Unknown:
        answer: tuple[str, ...] | Unknown = self._once(("list", path), lambda: self._inner.list(path))
        return answer

    def glob(self, pattern: str) -> tuple[str, ...]:
        answer: tuple[str, ...] = self._once(("glob", pattern), lambda: self._inner.glob(pattern))
        return answer

    def link(self, path: str) -> str | Unknown:
        answer: str | Unknown = self._once(("link", path), lambda: self._inner.link(path))
        return answer

    def exists(self, path: str) -> bool | Unknown:
        answer: bool | Unknown = self._once(("exists", path), lambda: self._inner.exists(path))
        return answer

    def run(self, argv: tuple[str, ...], *, timeout_s: float = 10.0) -> Output | Unknown:
        key = ("run", *argv)

        def ask() -> Output | Unknown:
            found = self._inner.run(argv, timeout_s=timeout_s)
            return found if isinstance(found, Unknown) else redact.when_read("run", "", found)

        answer: Output | Unknown = self._once(key, ask)
        return answer

    def query(self, source: str) -> object | Unknown:
        def ask() -> object | Unknown:
            found = self._inner.query(source)
            return found if isinstance(found, Unknown) else redact.when_read("query", source, found)

        answer: object | Unknown = self._once(("query", source), ask)
        return answer
