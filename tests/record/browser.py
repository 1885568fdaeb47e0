"""A real browser for the pages: Chromium without a window, driven over its debugging pipe."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-pipe", "--hide-scrollbars", "--force-device-scale-factor=1"),
)


class Page:
    """One page: what it logged, what it asked the network for, and what JavaScript answers about it."""

    def __init__(self, to: BinaryIO, back: BinaryIO) -> None:
        self._to, self._back = to, back
        self._left, self._count, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """What the browser answers; what happens meanwhile is kept in `events`."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, url: str) -> None:
        """Go there and wait until it has loaded."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not self._happened("Page.loadEventFired"):
            self.events.append(self._next())

    def ask(self, script: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console shows as an error or a warning."""
        logged = [one["params"]["entry"] for one in self._happened("Log.entryAdded")]
        said = [one["params"] for one in self._happened("Runtime.consoleAPICalled")]
        thrown = [str(one["params"]) for one in self._happened("Runtime.exceptionThrown")]
        return [one["text"] for one in logged if one["level"] in ("error", "warning")] + [
            str(one["args"]) for one in said if one["type"] in ("error", "warning", "assert")
        ] + thrown  # fmt: skip

    def requests(self) -> list[str]:
        """Every address that the page asked for."""
        return [one["params"]["request"]["url"] for one in self._happened("Network.requestWillBeSent")]

    def press(self, key: str, code: int) -> None:
        """One key, down and up."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            given = text if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **given
            )

    def _happened(self, method: str) -> list[dict[str, Any]]:
        return [one for one in self.events if one.get("method") == method]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._left:
            data = self._back.read(1 << 20)
            assert data, "the browser has gone"
            self._left += data
        first, _, self._left = self._left.partition(b"\0")
        message: dict[str, Any] = json.loads(first)
        return message


def _pipe(high: int) -> tuple[int, int]:
    """A pipe whose end number `high` stands clear of the descriptors that the browser wants."""
    ends = list(os.pipe())
    moved = fcntl.fcntl(ends[high], fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(ends[high])
    ends[high] = moved
    return ends[0], ends[1]


@contextmanager
def chromium(profile: Path, *flags: str) -> Iterator[Page]:
    """A browser with a profile of its own, ended afterwards."""
    to_read, to_write = _pipe(high=0)
    back_read, back_write = _pipe(high=1)
    assert CHROMIUM
    # The protocol wants descriptors 3 and 4.
    wire = f"import os, sys; os.dup2({to_read}, 3); os.dup2({back_write}, 4); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", wire, CHROMIUM, *FLAGS, *flags, f"--user-data-dir={profile}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(to_read, back_write),
        start_new_session=True,
    )
    os.close(to_read)
    os.close(back_write)
    with os.fdopen(to_write, "wb", 0) as to, os.fdopen(back_read, "rb", 0) as back:
        try:
            yield Page(to, back)
        finally:
            process.kill()
            process.wait()
