"""Settings of an NVIDIA GPU through the driver's own library. Standard library only.

By ctypes and not by nvidia-ml-py, since undo must work after the virtual environment is gone and one way of
writing is easier to trust than two. Function names and codes: NVML API Reference Guide, nvml.h.
"""

import contextlib
import ctypes
import errno
from collections.abc import Callable, Iterator
from typing import Any

Recipe = dict[str, Any]
LIBRARY = "libnvidia-ml.so.1"
ERRNO = {
    2: (errno.EINVAL, "the driver refuses the value"),
    3: (errno.EOPNOTSUPP, "this GPU does not support it"),
    4: (errno.EPERM, "the driver asks for root on the host"),
    6: (errno.ENODEV, "no such GPU"),
    9: (errno.ENODEV, "the driver is not loaded"),
    13: (errno.ENOSYS, "this driver has no such function"),
    15: (errno.ENODEV, "the GPU fell off the bus"),
    19: (errno.EBUSY, "the GPU is in use"),
}
GRAPHICS, MEMORY = 0, 2
SIMPLE = {
    "persistence": "PersistenceMode",
    "power_limit_mw": "PowerManagementLimit",
    "compute_mode": "ComputeMode",
}


@contextlib.contextmanager
def _gpu(recipe: Recipe) -> Iterator[tuple[Callable[..., None], ctypes.c_void_p]]:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise FileNotFoundError(errno.ENOENT, f"{LIBRARY} is not installed", recipe["gpu"]) from error

    def call(name: str, *arguments: Any) -> None:
        function = getattr(library, name, None)
        code = function(*arguments) if function else 13
        if code:
            number, text = ERRNO.get(code, (errno.EIO, f"NVML error {code}"))
            raise OSError(number, f"{name}: {text}", recipe["gpu"])

    call("nvmlInit_v2")
    try:
        handle, gpu = ctypes.c_void_p(), recipe["gpu"].encode()
        by = "UUID" if gpu.startswith((b"GPU-", b"MIG-")) else "PciBusId_v2"
        call(f"nvmlDeviceGetHandleBy{by}", gpu, ctypes.byref(handle))
        yield call, handle
    finally:
        library.nvmlShutdown()


def _read(recipe: Recipe) -> str:
    setting = recipe["setting"]
    with _gpu(recipe) as (call, gpu):
        first, second = ctypes.c_uint(), ctypes.c_uint()
        if setting in SIMPLE:
            call(f"nvmlDeviceGet{SIMPLE[setting]}", gpu, ctypes.byref(first))
            return str(first.value)
        if setting == "application_clocks_mhz":
            call("nvmlDeviceGetApplicationsClock", gpu, MEMORY, ctypes.byref(first))
            call("nvmlDeviceGetApplicationsClock", gpu, GRAPHICS, ctypes.byref(second))
            return f"{first.value},{second.value}"
    raise OSError(errno.EOPNOTSUPP, "NVML has no function that reads a clock lock back", recipe["gpu"])


def _write(recipe: Recipe, value: str) -> None:
    setting, numbers = recipe["setting"], value.split(",")
    if value != "default" and not all(word.isdigit() for word in numbers):
        raise OSError(errno.EINVAL, f"{value}: not a value of {setting}", recipe["gpu"])
    with _gpu(recipe) as (call, gpu):
        if setting in SIMPLE and len(numbers) == 1 and value != "default":
            call(f"nvmlDeviceSet{SIMPLE[setting]}", gpu, ctypes.c_uint(int(value)))
        elif setting in ("gpu_clocks_mhz", "memory_clocks_mhz", "application_clocks_mhz"):
            kind = {"gpu": "GpuLockedClocks", "memory": "MemoryLockedClocks"}.get(
                setting.partition("_")[0], "ApplicationsClocks"
            )
            if value == "default":
                call(f"nvmlDeviceReset{kind}", gpu)
            elif len(numbers) == 2:
                call(f"nvmlDeviceSet{kind}", gpu, *(ctypes.c_uint(int(word)) for word in numbers))
            else:
                raise OSError(errno.EINVAL, f"{value}: two clocks, or default", recipe["gpu"])
        else:
            raise OSError(errno.EINVAL, f"{setting}={value}: not a setting", recipe["gpu"])


READ = {"nvml": _read}
WRITE = {"nvml": _write}
