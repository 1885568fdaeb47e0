"""What NVML says about the GPUs under test: NVLinks between them, their error counters, who else uses them."""

from collections.abc import Mapping, Sequence
from typing import Any

from uncork.gate.fabric import Counter, Device, Path
from uncork.host import Host
from uncork.model.unknown import Unknown, is_unknown
from uncork.parsers import pci_address

# NVLink's nominal rates of a link in one direction, GB/s: published fractions are of these; NVML reports the
# line rate, which is a few per cent above.
_NOMINAL_GB_S = (50.0, 25.0, 20.0)
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH (nvml.h)
_BUSY_PERCENT = 10
_LINK_ERRORS = ("replay_errors", "recovery_errors", "crc_errors")

Reading = Mapping[str, Mapping[str, Any]]  # bus id -> what NVML says about that GPU


def read(host: Host) -> Reading | Unknown:
    """Every GPU by its bus id; Unknown where NVML cannot be asked."""
    answer = host.query("nvml")
    if is_unknown(answer):
        return answer
    gpus = answer.get("gpus", []) if isinstance(answer, dict) else []
    return {pci_address.full(gpu["bdf"]): gpu for gpu in gpus if isinstance(gpu.get("bdf"), str)}


def nvlink(gpus: Reading | Unknown, one: Device, other: Device) -> Path | None:
    """The NVLink path between two GPUs, direct or over a switch; None where they have none."""
    if is_unknown(gpus):
        return None
    far, links = pci_address.full(other.bus_id), _links(gpus, one)
    rates = [
        _rate(link) for link in links if link.get("remote_bdf") == far or link.get("remote_type") == _SWITCH
    ]
    if not rates or not any(
        link.get("remote_bdf") == pci_address.full(one.bus_id) or link.get("remote_type") == _SWITCH
        for link in _links(gpus, other)
    ):
        return None
    return Path("nvlink", (f"{one.label} tx", f"{other.label} rx"), sum(rates))


def _links(gpus: Reading, device: Device) -> list[Mapping[str, Any]]:
    links = gpus.get(pci_address.full(device.bus_id), {}).get("nvlinks")
    return [link for link in links if link.get("active") is True] if isinstance(links, list) else []


def _rate(link: Mapping[str, Any]) -> float:
    speed = link.get("speed_mb_s")
    gb_s = speed / 1000 if isinstance(speed, int | float) else 0.0
    return next((nominal for nominal in _NOMINAL_GB_S if gb_s >= nominal), 25.0)


def counters(gpus: Reading | Unknown, devices: Sequence[Device]) -> list[Counter]:
    """Uncorrectable ECC errors and NVLink replays, recoveries and CRC errors; what a GPU has not is left out."""
    found: list[Counter] = []
    for device in devices:
        if is_unknown(gpus):
            found.append(Counter(device.label, "ecc", Unknown(gpus.reason)))
            continue
        gpu = gpus.get(pci_address.full(device.bus_id), {})
        if gpu.get("ecc") is True:
            found.append(Counter(device.label, "ecc", _count(gpu.get("ecc_uncorrected_volatile"))))
        links = _links(gpus, device)
        for name in _LINK_ERRORS if links else ():
            counts = [_count(link.get(name)) for link in links]
            known = [count for count in counts if not is_unknown(count)]
            if known:
                found.append(Counter(f"{device.label} NVLink", name.replace("_errors", ""), sum(known)))
    return found


def _count(value: object) -> int | Unknown:
    if isinstance(value, int):
        return value
    reason = value.get("unknown") if isinstance(value, dict) else None
    return Unknown(str(reason or "NVML does not tell it"))


def disturbing(gpus: Reading | Unknown, devices: Sequence[Device]) -> tuple[str, ...]:
    """What makes figures worthless: a GPU that is cut up (MIG has no peers) or busy with something else."""
    if is_unknown(gpus):
        return ()
    found = []
    for device in devices:
        gpu = gpus.get(pci_address.full(device.bus_id), {})
        if gpu.get("mig") is True:
            found.append(f"{device.label} is in MIG mode, which has no peer access")
        busy = gpu.get("utilization_percent")
        if isinstance(busy, int) and busy >= _BUSY_PERCENT:
            found.append(f"{device.label} was {busy} % busy before the run")
    return tuple(found)
