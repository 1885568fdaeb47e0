"""Error counters along the paths of GPUs: AER at both ends of each link, and the kernel log's Xid and IOMMU lines."""

import re
from collections.abc import Sequence

from uncork.gate.cuda.topology import DEVICES, Place
from uncork.gate.fabric import Counter
from uncork.host import Host
from uncork.model.unknown import Unknown, is_unknown

# Documentation/ABI/testing/sysfs-bus-pci-devices-aer_stats; AER may be logged at the link partner, so both are read.
_AER = {"aer_dev_fatal": "fatal", "aer_dev_nonfatal": "nonfatal", "aer_dev_correctable": "correctable"}
_LOG = {
    "xid": re.compile(r"NVRM: Xid"),
    "iommu": re.compile(r"DMAR:.*fault|AMD-Vi:.*(?:Event|fault)|IO_PAGE_FAULT"),
}


def read(
    host: Host, places: Sequence[Place | Unknown], labels: Sequence[str], sample: int
) -> tuple[Counter, ...]:
    """Every counter as it is now. A port without AER has none; one that may not be read is Unknown."""
    found: dict[tuple[str, str], Counter] = {}
    for one, label in zip(places, labels, strict=True):
        if is_unknown(one):
            continue
        names = {f"{label} link": one.bdf, **{f"bridge {bridge}": bridge for bridge in one.bridges}}
        for name, bdf in names.items():
            for file, kind in _AER.items():
                value = _total(host.read(f"{DEVICES}/{bdf}/{file}", sample=sample))
                if value is not None:
                    found[name, kind] = Counter(name, kind, value)
    return (*found.values(), *_log(host, sample))


def _total(text: str | Unknown) -> int | Unknown | None:
    if is_unknown(text):
        return None if text.absent else text
    counts = [
        int(count)
        for name, count in re.findall(r"^(\w+) (\d+)$", text, re.M)
        if not name.startswith("TOTAL_ERR")
    ]
    return sum(counts)


def _log(host: Host, sample: int) -> list[Counter]:
    said = host.run(("dmesg",), timeout_s=5.0)
    if is_unknown(said):
        return [Counter("kernel log", kind, said) for kind in _LOG]
    if said.rc != 0:
        reason = Unknown(f"dmesg: {said.stderr.strip() or said.rc}; run as root")
        return [Counter("kernel log", kind, reason) for kind in _LOG]
    return [Counter("kernel log", kind, len(pattern.findall(said.stdout))) for kind, pattern in _LOG.items()]
