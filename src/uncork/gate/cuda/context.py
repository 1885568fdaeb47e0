"""What to read beside a failure: IOMMU type, ACS, BAR1, links and settings that change how peers reach each other."""

import os
from collections.abc import Sequence

from uncork.gate.cuda import registers
from uncork.gate.cuda.topology import DEVICES, place
from uncork.gate.fabric import Device
from uncork.host import Host
from uncork.model.unknown import is_unknown

SETTINGS = (
    "NCCL_",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "VLLM_SKIP_P2P_CHECK",
    "SGLANG_SKIP_P2P_CHECK",
)


def about(host: Host, devices: Sequence[Device]) -> dict[str, str]:
    """Name -> what was read, for these devices and the bridges above them; what could not be read says so."""
    found = {"kernel command line": _said(host.read("/proc/cmdline"))}
    for device in devices:
        bdf = device.bus_id.lower()[-12:]
        base = f"{DEVICES}/{bdf}"
        found[f"{device.label} IOMMU group type"] = _said(host.read(f"{base}/iommu_group/type"))
        found[f"{device.label} BAR1"] = _bar1(_said(host.read(f"{base}/resource")))
        speed, width = (_said(host.read(f"{base}/current_link_{what}")) for what in ("speed", "width"))
        found[f"{device.label} link"] = f"{speed} x{width}"
        here = place(host, device.bus_id)
        for bridge in () if is_unknown(here) else here.bridges:
            found[f"bridge {bridge} ACS"] = registers.acs(registers.config(host, bridge))
    found.update({name: os.environ[name] for name in sorted(os.environ) if name.startswith(SETTINGS)})
    return found


def _said(value: object) -> str:
    return str(value).strip()


def _bar1(resource: str) -> str:
    """The size of the second memory region in sysfs' `resource` (start end flags, a line a region)."""
    lines = resource.splitlines()
    if len(lines) < 2 or "unknown" in resource:
        return resource
    sizes = []
    for line in lines[:6]:
        start, end, *_ = (int(part, 16) for part in line.split())
        sizes.append(end - start + 1 if end else 0)
    return f"{max(sizes) / (1 << 20):.0f} MiB (largest region)"
