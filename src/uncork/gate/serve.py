"""The rank's side of `ranks.py`: answer requests until the coordinator closes the socket or dies.

Standard library only, so that eight processes start at once without delay.
"""

import ctypes
import importlib
import marshal
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

MESSAGE_BYTES = 192 * 1024
_PR_SET_PDEATHSIG = 1


class Refused(Exception):
    """Raised by an operation when the driver says no before a byte moved."""


def serve(fd: int, program: str, index: int, parent: int) -> None:
    """Serve the operations of `program`, a module with `operations(index)`, over the socket `fd`."""
    # A rank that spins in a kernel must not outlive the coordinator.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the coordinator's to handle
    operations: dict[str, Callable[..., Any]] = importlib.import_module(program).operations(index)
    line = socket.socket(fileno=fd)
    while True:
        data, fds, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 8)
        if not data:
            return
        request = marshal.loads(data)
        if fds:
            request["fds"] = fds
        answer, out = _answer(operations, request)
        socket.send_fds(line, [marshal.dumps(answer)], out)


def _answer(
    operations: dict[str, Callable[..., Any]], request: dict[str, Any]
) -> tuple[dict[str, Any], list[int]]:
    try:
        value = operations[request.pop("op")](**request) or {}
    except Refused as refused:
        return {"ended": "refused", "says": str(refused)}, []
    except Exception as error:
        return {"ended": "failed", "says": f"{type(error).__name__}: {error}"[:300]}, []
    fds = value.pop("fds", [])
    return {"ended": "ok", "value": value}, fds
