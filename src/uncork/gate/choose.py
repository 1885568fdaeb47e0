"""Open the fabric that a person names."""

import ctypes.util
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from uncork.errors import BadInput, MeasureFailed
from uncork.model.gate import Depth
from uncork.model.unknown import is_unknown

FABRICS = ("auto", "host", "cuda", "simulated", "hip")
SIMULATED = "pro6000-8x"


def choose_fabric(
    name: str = "auto",
    depth: Depth | str = Depth.FULL,
    *,
    nccl: str = "",
    simulate: str = SIMULATED,
    faults: Sequence[str] = (),
) -> AbstractContextManager[Any]:
    """The fabric of that name, open: CUDA where `auto` finds two devices, host memory otherwise.

    `nccl` names the server's libnccl.so.2 (else the one that a running server has loaded is taken); `simulate`
    names the simulated host and `faults` what is wrong with it (`slow@0-3*0.5`).
    Raises `BadInput` for an unknown name, `MeasureFailed` where the named fabric cannot be had here.
    """
    if name not in FABRICS:
        raise BadInput(f"There is no fabric {name!r}.", next=f"use one of {', '.join(FABRICS)}")
    if name == "hip":
        raise MeasureFailed(
            "GPUs of AMD cannot be tested yet: the fabric is designed for HIP and has no HIP ranks. No GPU was tested.",
            next="rocm_bandwidth_test and TransferBench measure them; --fabric host tests the host's memory",
        )
    if name == "simulated":
        return _simulated(simulate, faults)
    if name == "cuda" or (name == "auto" and _has_peers()):
        return _cuda(Depth(depth), nccl)
    from uncork.gate.hostmem.fabric import HostMemory

    return HostMemory(depth=Depth(depth))


def _has_peers() -> bool:
    """Whether CUDA sees two devices or more; a single GPU has no peer, so its host's memory is tested instead."""
    if ctypes.util.find_library("cuda") is None and not Path("/dev/nvidiactl").exists():
        return False
    from uncork.gate.cuda.fabric import device_count

    count = device_count()
    return not is_unknown(count) and count > 1


def _cuda(depth: Depth, nccl: str) -> AbstractContextManager[Any]:
    from uncork.gate.cuda.fabric import CudaFabric
    from uncork.gate.cuda.library import of_servers

    return CudaFabric(depth=depth, nccl=nccl or of_servers())


def _simulated(host: str, faults: Sequence[str]) -> AbstractContextManager[Any]:
    from uncork.gate.simulated import HOSTS, SimulatedFabric, parse_fault

    if host not in HOSTS:
        raise BadInput(f"There is no simulated host {host!r}.", next=f"use one of {', '.join(HOSTS)}")
    return SimulatedFabric(HOSTS[host], [parse_fault(fault) for fault in faults])
