"""One GPU's process: its memory, its streams, and the others' memory by legacy IPC and by VMM handle.

NCCL's cuMem path and symmetric memory use VMM handles, older code legacy IPC; either can fail alone. The coordinator
says which kind a transfer works on.
"""

import contextlib
import ctypes
import time
from collections.abc import Callable
from typing import Any

from cuda.bindings import driver as cu

from uncork.gate.cuda.driver import CudaError, Kernels, VmmMemory, do, elapsed_s, import_vmm, wait
from uncork.gate.serve import Refused

FLAG_BYTES = 64 * 1024
IPC, VMM = "ipc", "vmm"
IPC_HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE (cuda.h)


class Gpu:
    """The memory and streams of one device."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.device = 0
        self.half = 0
        self.memory: dict[tuple[int, str], int] = {}
        self.mapped: dict[int, int] = {}  # bytes of VMM memory of a peer
        self.streams: list[Any] = []

    def probe(self) -> dict[str, Any]:
        """What devices there are, and the driver's version."""
        do(cu.cuInit, 0)
        found = []
        for ordinal in range(int(do(cu.cuDeviceGetCount))):
            device = do(cu.cuDeviceGet, ordinal)
            name = do(cu.cuDeviceGetName, 100, device).split(b"\0")[0].decode()
            bus_id = do(cu.cuDeviceGetPCIBusId, 32, device).split(b"\0")[0].decode().lower()
            found.append({"name": name, "bus_id": bus_id})
        return {"devices": found, "driver": int(do(cu.cuDriverGetVersion))}

    def start(self, device: int, half_bytes: int) -> dict[str, Any]:
        """A context on this device, memory of both kinds, and the handles for the others."""
        do(cu.cuInit, 0)
        self.device, self.half = device, half_bytes
        self.handle = do(cu.cuDeviceGet, device)
        do(cu.cuCtxSetCurrent, do(cu.cuDevicePrimaryCtxRetain, self.handle))
        processors = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        self.kernels = Kernels(int(do(cu.cuDeviceGetAttribute, processors, self.handle)))
        self.stream = do(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self.out = int(do(cu.cuMemAlloc, 4096))
        total = 2 * half_bytes + FLAG_BYTES
        answer: dict[str, Any] = {"fds": []}
        self.memory[self.index, IPC] = int(do(cu.cuMemAlloc, total))
        try:
            ipc = do(cu.cuIpcGetMemHandle, self.memory[self.index, IPC])
            answer["ipc"] = ctypes.string_at(ipc.getPtr(), IPC_HANDLE_BYTES)
        except CudaError as error:
            answer["no_ipc"] = error.name
        try:
            vmm = VmmMemory(device, total)
            self.memory[self.index, VMM] = vmm.address
            answer["fds"], answer["vmm_bytes"] = [vmm.export()], vmm.size
        except CudaError as error:
            answer["no_vmm"] = error.name
        return answer

    def free_bytes(self, device: int) -> dict[str, Any]:
        """Free memory of the device, before anything is allocated."""
        do(cu.cuInit, 0)
        do(cu.cuCtxSetCurrent, do(cu.cuDevicePrimaryCtxRetain, do(cu.cuDeviceGet, device)))
        free, _total = do(cu.cuMemGetInfo)
        return {"free": int(free)}

    def peer(
        self, index: int, device: int, ipc: bytes, vmm_bytes: int, fds: list[int] | None = None
    ) -> dict[str, Any]:
        """Open another GPU's memory (again, after its process was replaced); what was granted."""
        far = do(cu.cuDeviceGet, device)
        granted: dict[str, Any] = {}
        if device != self.device:
            granted["peer"] = bool(do(cu.cuDeviceCanAccessPeer, self.handle, far))
            atomics = cu.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
            granted["atomics"] = bool(do(cu.cuDeviceGetP2PAttribute, atomics, self.handle, far))
        granted[IPC] = self._open(index, IPC, lambda: self._open_ipc(ipc)) if ipc else False
        granted[VMM] = (
            self._open(index, VMM, lambda: import_vmm(fds[0], vmm_bytes, self.device)) if fds else False
        )
        self.mapped[index] = vmm_bytes
        return granted

    def _open_ipc(self, handle: bytes) -> int:
        ipc = cu.CUipcMemHandle()
        ctypes.memmove(ipc.getPtr(), handle, IPC_HANDLE_BYTES)
        lazy = int(cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        return int(do(cu.cuIpcOpenMemHandle, ipc, lazy))

    def _open(self, index: int, kind: str, opened: Callable[[], int]) -> bool:
        old = self.memory.pop((index, kind), None)
        if old is not None and kind == IPC:
            # What a replaced process had shared stays allocated until the last of us lets go of it.
            with contextlib.suppress(CudaError):
                do(cu.cuIpcCloseMemHandle, old)
        elif old is not None:
            with contextlib.suppress(CudaError):
                do(cu.cuMemUnmap, old, self.mapped[index])
        try:
            self.memory[index, kind] = opened()
        except CudaError:
            return False
        return True

    def base(self, index: int, kind: str) -> int:
        """Where this kind of a device's memory starts. Raises `Refused`."""
        if (index, kind) not in self.memory:
            raise Refused(
                f"{kind} memory of device {index} is not open in the process of device {self.index}"
            )
        return self.memory[index, kind]

    def ready(self, poison: list[dict[str, Any]], fill: list[dict[str, Any]]) -> None:
        """Poison destination slots (guards included) and write keyed patterns into source slots."""
        for slot in poison:
            start = self._own(slot) + self.half + slot["at"]
            do(cu.cuMemsetD8Async, start, slot["poison"], slot["room"], self.stream)
        for slot in fill:
            start = self._own(slot) + slot["at"] + slot["offset"]
            self.kernels.launch(
                "uk_fill",
                self.stream,
                start,
                slot["size"] // 4,
                *_halves(slot["key"]),
                words=slot["size"] // 4,
            )
        self._settle()

    def _own(self, slot: dict[str, Any]) -> int:
        return self.base(self.index, slot["kind"])

    def copy(self, moves: list[dict[str, Any]], start_at_s: float) -> dict[str, Any]:
        """Run these copies at once, a stream each, timed by events on the GPU."""
        ends = [
            (self.base(move["src"], move["kind"]), self.base(move["dst"], move["kind"])) for move in moves
        ]
        while len(self.streams) < len(moves):
            self.streams.append(do(cu.cuStreamCreate, cu.CUstream_flags.CU_STREAM_NON_BLOCKING))
        if (early_s := start_at_s - time.monotonic()) > 0:
            time.sleep(early_s)
        timed = []
        for move, stream, (src, dst) in zip(moves, self.streams, ends, strict=False):
            start, end = do(cu.cuEventCreate, 0), do(cu.cuEventCreate, 0)
            do(cu.cuEventRecord, start, stream)
            for _ in range(move["loops"]):
                self._one(move, stream, src + move["from"], dst + self.half + move["to"])
            do(cu.cuEventRecord, end, stream)
            timed.append((start, end))
        seconds = []
        for start, end in timed:
            wait(end)
            seconds.append(elapsed_s(start, end))
            do(cu.cuEventDestroy, start)
            do(cu.cuEventDestroy, end)
        return {"seconds": seconds}

    def _one(self, move: dict[str, Any], stream: Any, src: int, dst: int) -> None:
        if move["engine"] == "copy":
            do(cu.cuMemcpyDtoDAsync, dst, src, move["size"], stream)
        else:
            self.kernels.launch("uk_copy", stream, dst, src, move["size"] // 4, words=move["size"] // 16)

    def check(self, received: list[dict[str, Any]], sent: list[dict[str, Any]]) -> dict[str, Any]:
        """Compare what arrived here, look at its guards, and re-check what was sent from here."""
        arrived = []
        for slot in received:
            base = self._own(slot) + self.half + slot["at"]
            begin, end = base + slot["offset"], base + slot["offset"] + slot["size"]
            wrong, first = self._compare(begin, slot["size"], slot["key"])
            poison = slot["poison"] * 0x01010101
            guard = self._differ(base, begin, poison) + self._differ(end, base + slot["room"], poison)
            arrived.append({"wrong": wrong, "first": first, "guard": guard > 0})
        changed = [
            self._compare(self._own(s) + s["at"] + s["offset"], s["size"], s["key"])[0] > 0 for s in sent
        ]
        return {"arrived": arrived, "changed": changed}

    def _compare(self, start: int, size: int, key: int) -> tuple[int, int]:
        do(cu.cuMemsetD8Async, self.out, 0, 8, self.stream)
        do(cu.cuMemsetD8Async, self.out + 8, 0xFF, 8, self.stream)
        words = size // 4
        self.kernels.launch("uk_check", self.stream, start, words, *_halves(key), self.out, words=words)
        wrong, first = self._results(2)
        return wrong, first * 4 if wrong else -1

    def _differ(self, start: int, end: int, value: int) -> int:
        do(cu.cuMemsetD8Async, self.out, 0, 8, self.stream)
        words = (end - start) // 4
        self.kernels.launch("uk_differ", self.stream, start, words, value, self.out, words=words)
        return self._results(1)[0]

    def _results(self, count: int) -> list[int]:
        self._settle()
        values = (ctypes.c_uint64 * count)()
        do(cu.cuMemcpyDtoH, ctypes.addressof(values), self.out, 8 * count)
        return list(values)

    def _settle(self) -> None:
        event = do(cu.cuEventCreate, 0)
        do(cu.cuEventRecord, event, self.stream)
        wait(event)
        do(cu.cuEventDestroy, event)

    def clear_flags(self) -> None:
        """Reset this GPU's flags before a ping-pong."""
        for kind in (IPC, VMM):
            if (self.index, kind) in self.memory:
                do(
                    cu.cuMemsetD8Async,
                    self.memory[self.index, kind] + 2 * self.half,
                    0,
                    FLAG_BYTES,
                    self.stream,
                )
        self._settle()

    def flag(self, far: int, kind: str, first: bool, rounds: int, limit_s: float) -> dict[str, Any]:
        """One side of a ping-pong; the kernel keeps its own clock limit."""
        there = self.base(far, kind) + 2 * self.half
        here = self.base(self.index, kind) + 2 * self.half
        mine, theirs = (0, 1024) if first else (1024, 0)
        do(cu.cuMemsetD8Async, self.out, 0, 24, self.stream)
        addresses = (there + mine, here + theirs, there + 4096 + mine, here + 4096 + theirs)
        self.kernels.launch(
            "uk_flag", self.stream, *addresses, rounds, int(first), int(limit_s * 1e9), self.out
        )
        done, stale, ns = self._results(3)
        one_way = ns / (2 * (done - 1)) if done > 1 else 0.0
        return {"rounds": done, "stale": stale, "ns": one_way}


def _halves(key: int) -> tuple[int, int]:
    return key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF


def operations(index: int) -> dict[str, Callable[..., Any]]:
    """What the coordinator may ask of this rank."""
    from uncork.gate.cuda.nccl import Collective

    gpu = Gpu(index)
    collective = Collective(gpu)
    names = ("probe", "start", "free_bytes", "peer", "ready", "copy", "check", "clear_flags", "flag")
    return {
        **{name: getattr(gpu, name) for name in names},
        "nccl_id": collective.unique_id,
        "nccl_start": collective.start,
        "all_reduce": collective.all_reduce,
    }
