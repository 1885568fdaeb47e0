"""Figures of host memory beside the copies: load latency, core to core, wake-up from idle, and EDAC counters."""

from pathlib import Path
from typing import TYPE_CHECKING

from uncork.gate.fabric import Counter, Ended
from uncork.model.gate import Figure
from uncork.model.unknown import Unknown

if TYPE_CHECKING:
    from uncork.gate.hostmem.fabric import HostMemory

EDAC = Path("/sys/devices/system/edac/mc")


def edac_counters(root: Path = EDAC) -> tuple[Counter, ...]:
    """Memory errors that the kernel counted (Documentation/admin-guide/RAS): correctable and not."""
    found = []
    for folder in sorted(root.glob("mc[0-9]*")):
        for name, kind in (("ue_count", "ecc"), ("ce_count", "correctable")):
            try:
                value: int | Unknown = int((folder / name).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                value = Unknown(f"{folder / name}: {error}")
            found.append(Counter(f"memory controller {folder.name}", kind, value))
    return tuple(found)


def extra_figures(host: "HostMemory") -> tuple[Figure, ...]:
    """Nothing yet without compiled code."""
    return ()


__all__ = ["Ended", "edac_counters", "extra_figures"]
