"""The driver calls that a rank needs, over cuda-bindings; each failure is a `CudaError` with the driver's own name."""

import ctypes
import os
import time
from importlib import resources
from typing import Any, ClassVar

from cuda.bindings import driver as cu


class CudaError(Exception):
    """A driver call failed; `name` is the driver's name for it, `call` what was asked."""

    def __init__(self, name: str, call: str) -> None:
        super().__init__(f"{name} in {call}")
        self.name, self.call = name, call


def do(function: Any, *args: Any) -> Any:
    """Call the driver; its value, a tuple of several, or None. Raises `CudaError`."""
    code, *values = function(*args)
    if int(code) != 0:
        _, text = cu.cuGetErrorName(code)
        raise CudaError(text.decode() if text else f"error {int(code)}", function.__name__)
    return values[0] if len(values) == 1 else tuple(values) or None


class Kernels:
    """The kernels of kernels.ptx in the current context."""

    # name in the module -> types of its parameters
    _PARAMETERS: ClassVar[dict[str, tuple[type, ...]]] = {
        "uk_fill": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32),
        "uk_check": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64),
        "uk_differ": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64),
        "uk_copy": (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64),
        "uk_flag": (*(ctypes.c_uint64,) * 5, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64),
    }

    def __init__(self, processors: int) -> None:
        ptx = resources.files(__package__).joinpath("kernels.ptx").read_bytes()
        self._module = do(cu.cuModuleLoadData, ptx + b"\0")
        self._functions = {
            name: do(cu.cuModuleGetFunction, self._module, name.encode()) for name in self._PARAMETERS
        }
        # Two blocks a processor keep enough loads in flight for a PCIe or NVLink peer.
        self._blocks = 2 * processors

    def launch(self, name: str, stream: Any, *values: int, words: int = 1 << 30) -> None:
        """Start a kernel over `words` words; a ping-pong runs as one warp."""
        blocks, threads = (1, 32) if name == "uk_flag" else (max(1, min(self._blocks, -(-words // 512))), 512)
        parameters = (values, self._PARAMETERS[name])
        do(cu.cuLaunchKernel, self._functions[name], blocks, 1, 1, threads, 1, 1, 0, stream, parameters, 0)


def wait(event: Any) -> None:
    """Poll an event: a rank never blocks inside the driver, where nothing could end it but SIGKILL."""
    pause_s = 0.0
    while True:
        (code,) = cu.cuEventQuery(event)
        if int(code) == 0:
            return
        if code != cu.CUresult.CUDA_ERROR_NOT_READY:
            raise CudaError(str(code.name), "cuEventQuery")
        time.sleep(pause_s)
        pause_s = min(0.001, pause_s + 0.00002)


def elapsed_s(start: Any, end: Any) -> float:
    """Seconds between two events that have passed, on the GPU's clock."""
    return float(do(cu.cuEventElapsedTime, start, end)) / 1000


class VmmMemory:
    """Device memory that is handed out as a file descriptor (cuMem*, as NCCL and symmetric memory use it)."""

    def __init__(self, device: int, size: int) -> None:
        self.device = device
        prop = cu.CUmemAllocationProp()
        prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.requestedHandleTypes = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = device
        minimum = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        granularity = int(do(cu.cuMemGetAllocationGranularity, prop, minimum))
        self.size = -(-size // granularity) * granularity
        self._handle = do(cu.cuMemCreate, self.size, prop, 0)
        self.address = map_vmm(self._handle, self.size, device)

    def export(self) -> int:
        """A file descriptor for another process."""
        kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        return int(do(cu.cuMemExportToShareableHandle, self._handle, kind, 0))


def import_vmm(fd: int, size: int, device: int) -> int:
    """Map another process's memory for this device; the address. Closes `fd`."""
    kind = cu.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    try:
        handle = do(cu.cuMemImportFromShareableHandle, fd, kind)
    finally:
        os.close(fd)
    address = map_vmm(handle, size, device)
    do(cu.cuMemRelease, handle)  # the mapping keeps the memory
    return address


def map_vmm(handle: Any, size: int, device: int) -> int:
    """Reserve an address, map a handle there and grant this device reads and writes."""
    address = do(cu.cuMemAddressReserve, size, 0, 0, 0)
    do(cu.cuMemMap, address, size, 0, handle, 0)
    grant = cu.CUmemAccessDesc()
    grant.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    grant.location.id = device
    grant.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    do(cu.cuMemSetAccess, address, size, [grant], 1)
    return int(address)
