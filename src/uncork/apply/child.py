"""A forked child that reads and writes the host, so that a call that never returns costs only the child.

Standard library only: revert.py runs a copy of this file. The child inherits the open lock file: while a
write of a killed parent is still on its way, nobody else gets the lock.
"""

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Any

Serve = Callable[[dict[str, Any]], dict[str, Any]]
LIMIT_BYTES = 1 << 20
END_LIMIT_S = 10.0


class Hung(Exception):
    """The child did not answer within the time limit; it may be in an uninterruptible sleep."""


class Child:
    """One child a group of targets; `ask` sends a request to its `serve` function and waits for the answer."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._socket: socket.socket | None = None
        self._ends = False
        self.pid = 0

    def start(self) -> socket.socket:
        """Fork it now, so that it wakes up while the caller does something else; `ask` would do it otherwise."""
        mine, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            _child(mine, theirs, self._serve)
        theirs.close()
        self._socket = mine
        return mine

    def ask(self, request: dict[str, Any], timeout_s: float) -> Any:
        """The answer. Raises the OSError that the call raised, `Hung`, or OSError where the child died."""
        line = self._socket or self.start()
        try:
            line.sendall(json.dumps(request).encode() + b"\n")
            answer = _receive(line, timeout_s)
        except (BrokenPipeError, ConnectionResetError) as error:
            self.close()
            raise OSError(f"the process that {request.get('op', 'asked')} died") from error
        except Hung:
            self.abandon()
            raise
        if "errno" in answer:
            raise OSError(answer["errno"], answer["says"], answer.get("path"))
        return answer.get("value")

    def abandon(self) -> None:
        """Leave a hung child behind; it keeps the lock until its call returns, and then ends by itself."""
        if self._socket:
            self._socket.close()
            self._socket = None

    def end(self) -> None:
        """Let the child end while the caller does something else: nothing more will be asked of it."""
        self._ends = self._ends or self._socket is not None
        self.abandon()

    def close(self) -> None:
        """End the child and wait a moment for it; one that sleeps in a call is left to end by itself."""
        self.end()
        if self._ends:
            self._ends = False
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                _wait(self.pid)


def _wait(pid: int) -> None:
    handle = os.pidfd_open(pid)
    try:
        if select.select([handle], [], [], END_LIMIT_S)[0]:
            os.waitpid(pid, 0)
    finally:
        os.close(handle)


def _receive(line: socket.socket, timeout_s: float) -> dict[str, Any]:
    data = b""
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([line], [], [], timeout_s)
        if not ready:
            raise Hung
        more = line.recv(LIMIT_BYTES)
        if not more:
            raise ConnectionResetError
        data += more
    answer: dict[str, Any] = json.loads(data)
    return answer


def _child(mine: socket.socket, theirs: socket.socket, serve: Serve) -> None:
    # Ctrl-C reaches the whole terminal group; a write in progress is finished and read back.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A child that never returns must not keep open what our reader (a pipe, a terminal) waits on.
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    mine.close()
    try:
        with theirs.makefile("rb") as requests:
            for request in requests:
                theirs.sendall(json.dumps(_answer(serve, request)).encode() + b"\n")
    except BaseException:
        os._exit(1)
    os._exit(0)


def _answer(serve: Serve, request: bytes) -> dict[str, Any]:
    try:
        return serve(json.loads(request))
    except OSError as error:
        return {"errno": error.errno or 0, "says": error.strerror or str(error), "path": error.filename}
    except Exception as error:  # a fault of a knob must not look like a hang
        return {"errno": 0, "says": f"{type(error).__name__}: {error}"}
