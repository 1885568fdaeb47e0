"""Registers that decide how peers reach each other, from the configuration space of GPUs and the bridges above them."""

from collections.abc import Sequence

from uncork.explorers import pci_config
from uncork.gate.cuda.topology import DEVICES, Place
from uncork.gate.fabric import Register
from uncork.host import Host
from uncork.model.facts.pcie import Config
from uncork.model.unknown import Unknown, is_unknown

# PCI Express Base Specification 7.7.11, from bit 0.
_ACS = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")


def read(
    host: Host, places: Sequence[Place | Unknown], labels: Sequence[str], sample: int
) -> tuple[Register, ...]:
    """Every register as it is now; a device whose configuration space is not there has none."""
    found: dict[tuple[str, str], Register] = {}
    for one, label in zip(places, labels, strict=True):
        if is_unknown(one):
            continue
        ends = {f"{label} link": one.bdf, **{f"bridge {bridge}": bridge for bridge in one.bridges}}
        for component, bdf in ends.items():
            for name, value in _values(config(host, bdf, sample)).items():
                found[component, name] = Register(component, name, value)
    return tuple(found.values())


def config(host: Host, bdf: str, sample: int = 1) -> Config | Unknown:
    """The configuration space of one device; Unknown with the reason where it is kept back."""
    data = host.read_bytes(f"{DEVICES}/{bdf}/config", sample=sample)
    return data if is_unknown(data) else pci_config.parse(data)


def _values(found: Config | Unknown) -> dict[str, str | Unknown]:
    if is_unknown(found):
        return {} if found.absent else {"registers": found}
    return {
        "MaxPayload": str(found.payload_bytes),
        "MaxReadReq": str(found.read_request_bytes),
        "RelaxedOrdering": "on" if found.relaxed_ordering else "off",
        "ACS": acs(found),
    }


def acs(found: Config | Unknown) -> str:
    """The ACS control bits of a port, by name."""
    if is_unknown(found):
        return str(found)
    control = found.acs_control
    if control is None:
        return "no ACS capability"
    if is_unknown(control):
        return str(control)
    on = [name for bit, name in enumerate(_ACS) if control >> bit & 1]
    return f"0x{control:04x} ({' '.join(on) or 'all off'})"
