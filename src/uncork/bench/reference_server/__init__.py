"""A server whose every token has a known time, as its own process, on 127.0.0.1 only.

    with reference_server(ttft_us=50_000, itl_us=20_000) as server:
        ... ask server.url ...
    server.truth          # number -> Truth: arrival and the clock before and after every send

The server is C, compiled at first use where a compiler is found (cc, gcc or clang), else the Python twin in
`fallback.py`; `server.kind` says which. Faults: see FAULTS; `faults=("stall", "429"), every=5` gives them in
turn to every fifth request. With `mark` the first token of an answer is its number
(" r17"), so that clients which keep only texts can be matched, too.
"""

import contextlib
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from uncork import compiler
from uncork.bench.reference_server.fallback import FAULTS
from uncork.errors import MeasureFailed

_HEAD = struct.Struct("@qqqq")
_SENT = struct.Struct("@qqq")


class Truth(msgspec.Struct, frozen=True):
    """What the server did for one request, in ns of CLOCK_MONOTONIC."""

    number: int
    arrival_ns: int
    fault: str
    before_ns: tuple[int, ...]  # just before each send
    after_ns: tuple[int, ...]
    tokens: tuple[int, ...]


class Reference:
    """A running reference server; `truth` is there after it has stopped."""

    def __init__(self, url: str, kind: str, realtime: bool, process: "subprocess.Popen[bytes]") -> None:
        self.url = url
        self.kind = kind
        self.realtime = realtime
        self.process = process
        self.truth: dict[int, Truth] = {}


@contextlib.contextmanager
def reference_server(
    *,
    ttft_us: int = 50_000,
    itl_us: int = 20_000,
    stall_us: int = 200_000,
    per_chunk: int = 1,
    seed: int = 1,
    faults: tuple[str, ...] = (),
    every: int = 5,
    cpu: int = -1,
    realtime: bool = False,
    close_each: bool = False,
    role_alone: bool = False,
    mark: bool = False,
    compiled: bool = True,
) -> Iterator[Reference]:
    """Start the server, stop it at the end and read what it logged. Raises `MeasureFailed`."""
    unknown = set(faults) - set(FAULTS)
    if unknown:
        raise ValueError(f"unknown faults: {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="uncork-reference-") as folder:
        truth = Path(folder) / "truth"
        options = {
            "ttft-us": ttft_us,
            "itl-us": itl_us,
            "stall-us": stall_us,
            "per-chunk": per_chunk,
            "seed": seed,
            "cpu": cpu,
            "fifo": int(realtime),
            "truth": truth,
            "close-each": int(close_each),
            "role-alone": int(role_alone),
            "mark": int(mark),
            **({"faults": ",".join(faults), "every": every} if faults else {}),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        process = subprocess.Popen(
            [*_command(compiled), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            server = _greet(process)
            yield server
        finally:
            _stop(process)
        server.truth = read_truth(truth.read_bytes())


def _greet(process: "subprocess.Popen[bytes]") -> Reference:
    assert process.stdout is not None
    line = process.stdout.readline()
    try:
        said = msgspec.json.decode(line)
    except msgspec.DecodeError:
        raise MeasureFailed("The reference server did not start; nothing was measured.") from None
    return Reference(f"http://127.0.0.1:{said['port']}", said["kind"], said["realtime"], process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.close()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def read_truth(raw: bytes) -> dict[int, Truth]:
    """The log of a server that has stopped, by request number."""
    found: dict[int, Truth] = {}
    at = 0
    while at + _HEAD.size <= len(raw):
        number, arrival, fault, n = _HEAD.unpack_from(raw, at)
        at += _HEAD.size
        sent = [_SENT.unpack_from(raw, at + i * _SENT.size) for i in range(n)]
        at += n * _SENT.size
        before, after, tokens = zip(*sent, strict=True) if sent else ((), (), ())
        found[number] = Truth(number, arrival, FAULTS[abs(fault)], before, after, tokens)
    return found


def _command(compiled: bool) -> list[str]:
    source = Path(__file__).with_name("server.c").read_text(encoding="utf-8")
    built = compiler.program(source, "reference-server") if compiled else None
    if built is not None and os.access(built, os.X_OK):  # not on a mount with noexec
        return [str(built)]
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("fallback.py"))]
