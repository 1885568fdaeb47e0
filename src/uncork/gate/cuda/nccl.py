"""All-reduce latency of the server's own NCCL, by ctypes, and the transports that its log names."""

import ctypes
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cuda.bindings import driver as cu

from uncork.gate.cuda.driver import do, elapsed_s, wait
from uncork.gate.serve import Refused

if TYPE_CHECKING:
    from uncork.gate.cuda.rank import Gpu

ID_BYTES = 128  # NCCL_UNIQUE_ID_BYTES (nccl.h)
_UINT8, _SUM = 1, 0  # ncclUint8, ncclSum (nccl.h)
_IN_PROGRESS = 7  # ncclInProgress
# `NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM`
_CHANNEL = re.compile(r"(\d+)\[[0-9a-f]+\] -> (\d+)\[[0-9a-f]+\](?: \[\w+\])? via (\S+)")


class NcclError(Exception):
    """A call of the server's collective library failed; the operation ends, and its answer says so."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId, passed by value."""

    _fields_ = (("internal", ctypes.c_char * ID_BYTES),)


def transports(log: str) -> dict[str, str]:
    """`0→1` -> P2P/CUMEM, P2P/IPC, SHM, NET/… from NCCL_DEBUG=INFO; the worst where channels differ."""
    found: dict[str, str] = {}
    for src, dst, via in _CHANNEL.findall(log):
        name = f"{src}→{dst}"
        kind = via.split("/")[0]
        if name not in found or kind in ("SHM", "NET"):
            found[name] = kind if kind in ("SHM", "NET") else via
    return found


class Collective:
    """One rank of a communicator."""

    def __init__(self, gpu: "Gpu") -> None:
        self._gpu = gpu
        self._log = ""

    def _load(self, library: str) -> None:
        if self._log:
            return
        # In memory: gone with this process, also where it hangs and is killed.
        self._log = f"/proc/self/fd/{os.memfd_create('nccl-log')}"
        # NCCL reads these at its first call and never again; the server's own NCCL_* settings stay as they are.
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,P2P,SHM,NET", NCCL_DEBUG_FILE=self._log)
        try:
            self._nccl = ctypes.CDLL(library)
        except OSError as error:
            raise Refused(f"{library}: {error}") from None
        for name in ("ncclGetUniqueId", "ncclCommInitRank", "ncclAllReduce", "ncclGetVersion"):
            if not hasattr(self._nccl, name):
                raise Refused(f"{library} has no {name}")

    def unique_id(self, library: str) -> dict[str, Any]:
        """The id that all ranks start with."""
        self._load(library)
        identity = UniqueId()
        self._do(self._nccl.ncclGetUniqueId(ctypes.byref(identity)), "ncclGetUniqueId")
        version = ctypes.c_int()
        self._nccl.ncclGetVersion(ctypes.byref(version))
        return {"id": ctypes.string_at(ctypes.byref(identity), ID_BYTES), "version": version.value}

    def start(self, library: str, identity: bytes, ranks: int, rank: int) -> dict[str, Any]:
        """Join the communicator; the transports that its log names."""
        self._load(library)
        self._comm = ctypes.c_void_p()
        begin = self._nccl.ncclCommInitRank
        begin.argtypes = [ctypes.c_void_p, ctypes.c_int, UniqueId, ctypes.c_int]
        joined = UniqueId()
        ctypes.memmove(ctypes.byref(joined), identity, ID_BYTES)
        self._do(begin(ctypes.byref(self._comm), ranks, joined, rank), "ncclCommInitRank")
        self._reduce(8)  # connections are made by the first collective
        return {"transports": transports(Path(self._log).read_text(encoding="utf-8", errors="replace"))}

    def _reduce(self, size: int) -> float:
        gpu = self._gpu
        start, end = do(cu.cuEventCreate, 0), do(cu.cuEventCreate, 0)
        do(cu.cuEventRecord, start, gpu.stream)
        buffer = ctypes.c_void_p(gpu.memory[gpu.index, "ipc"])
        call = self._nccl.ncclAllReduce
        pointer, whole = ctypes.c_void_p, ctypes.c_int
        call.argtypes = [pointer, pointer, ctypes.c_size_t, whole, whole, pointer, pointer]
        self._do(
            call(buffer, buffer, size, _UINT8, _SUM, self._comm, ctypes.c_void_p(int(gpu.stream))),
            "ncclAllReduce",
        )
        do(cu.cuEventRecord, end, gpu.stream)
        wait(end)
        return elapsed_s(start, end) * 1e6

    def all_reduce(self, sizes: list[int], rounds: int, start_at_s: float) -> dict[str, Any]:
        """Microseconds of each round of each size, on the GPU's clock."""
        if (early_s := start_at_s - time.monotonic()) > 0:
            time.sleep(early_s)
        return {"samples_us": [[self._reduce(size) for _ in range(rounds)] for size in sizes]}

    def _do(self, code: int, call: str) -> None:
        if code not in (0, _IN_PROGRESS):
            self._nccl.ncclGetErrorString.restype = ctypes.c_char_p
            raise NcclError(f"{call} failed: {self._nccl.ncclGetErrorString(code).decode()}")
