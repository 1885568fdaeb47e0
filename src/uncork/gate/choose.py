"""Open the fabric that a person names."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from uncork.errors import BadInput
from uncork.model.gate import Depth

FABRICS = ("auto", "host", "cuda", "simulated")


def choose_fabric(
    name: str = "auto",
    depth: Depth | str = Depth.FULL,
    *,
    simulate: str = "pro6000-8x",
    faults: Sequence[str] = (),
) -> AbstractContextManager[Any]:
    """The fabric of that name, open: CUDA where `auto` finds a device, host memory otherwise.

    `simulate` names the simulated host and `faults` what is wrong with it (`slow@0-3*0.5`).
    Raises `BadInput` for an unknown name, `MeasureFailed` where the named fabric cannot be had here.
    """
    if name not in FABRICS:
        raise BadInput(f"There is no fabric {name!r}.", next=f"use one of {', '.join(FABRICS)}")
    if name == "simulated":
        return _simulated(simulate, faults)
    from uncork.gate.hostmem.fabric import HostMemory

    return HostMemory(depth=Depth(depth))


def _simulated(host: str, faults: Sequence[str]) -> AbstractContextManager[Any]:
    from uncork.gate.simulated import HOSTS, SimulatedFabric, parse_fault

    if host not in HOSTS:
        raise BadInput(f"There is no simulated host {host!r}.", next=f"use one of {', '.join(HOSTS)}")
    return SimulatedFabric(HOSTS[host], [parse_fault(fault) for fault in faults])
