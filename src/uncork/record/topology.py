"""The host as a drawing needs it: sockets, NUMA nodes, switches, devices and their links, as plain JSON."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.pcie import PciDevice
from uncork.model.unknown import Unknown, is_unknown
from uncork.parsers import pci_address

T = TypeVar("T")
_DRAWN = ("gpu", "nic", "nvme", "nvswitch")
_PORTS = ("upstream", "downstream")


class Device(msgspec.Struct, frozen=True):
    """A device that is drawn. Link fields are GT/s and lanes, None where they could not be read."""

    bdf: str
    kind: str  # gpu, nic, nvme, nvswitch
    name: str
    node: int | None
    root: str  # its root port's address, empty where the tree is not known
    switches: tuple[str, ...]  # upstream ports of the switches above it, the outermost first
    speed_gt_s: float | None
    max_speed_gt_s: float | None
    width: int | None
    max_width: int | None
    index: int | None = None  # of a GPU, as its driver counts
    note: str = ""  # link rate of a network port, memory of a GPU


class Node(msgspec.Struct, frozen=True):
    """A NUMA node: which CPUs, how much memory."""

    number: int
    cpus: str
    memory_bytes: int | None


class Topology(msgspec.Struct, frozen=True):
    """The drawing's whole input; `why` says what is missing and why. `levels` are GPU to GPU (PIX, NODE, NV18)."""

    sockets: int | None
    nodes: tuple[Node, ...]
    devices: tuple[Device, ...]
    levels: tuple[tuple[str, ...], ...] = ()
    why: tuple[str, ...] = ()


def of(facts: Facts) -> Topology:
    """What these facts tell about the host's shape; reads nothing."""
    why = []
    devices: tuple[Device, ...] = ()
    if is_unknown(facts.pcie) or is_unknown(facts.pcie.devices):
        why.append(f"PCI devices: {_reason(facts.pcie, 'devices')}")
    else:
        devices = tuple(_devices(facts, facts.pcie.devices))
    nodes: tuple[Node, ...] = ()
    if is_unknown(facts.numa) or is_unknown(facts.numa.nodes):
        why.append(f"NUMA nodes: {_reason(facts.numa, 'nodes')}")
    else:
        nodes = tuple(
            Node(one.number, _ranges(_known(one.cpus) or ()), _known(one.memory_bytes))
            for one in facts.numa.nodes
        )
    sockets = None if is_unknown(facts.firmware) else _known(facts.firmware.sockets)
    return Topology(sockets, nodes, devices, _levels(facts), tuple(why))


def _devices(facts: Facts, found: Iterable[PciDevice]) -> Iterable[Device]:
    bridges = {one.bdf: one for one in found if one.kind == "bridge"}
    gpus = _gpus(facts)
    for one in found:
        if one.kind not in _DRAWN:
            continue
        path = () if is_unknown(one.path) else one.path
        gpu = gpus.get(one.bdf.lower())
        node = _known(one.numa_node)
        yield Device(
            bdf=one.bdf,
            kind=one.kind,
            name=(_known(gpu.name) if gpu else None) or one.name,
            node=node if node is not None and node >= 0 else None,
            root=path[0] if path else "",
            switches=tuple(bdf for bdf in path[1:] if _port(bridges.get(bdf)) != "downstream"),
            speed_gt_s=_known(one.speed_gt_s),
            max_speed_gt_s=_known(one.max_speed_gt_s),
            width=_known(one.width),
            max_width=_known(one.max_width),
            index=gpu.index if gpu else None,
            note=_note(facts, one, gpu),
        )


def _port(bridge: PciDevice | None) -> str:
    """Upstream or downstream; without configuration space every second bridge below the root is downstream."""
    if bridge is None or is_unknown(bridge.config) or is_unknown(bridge.config.port):
        return ""
    return bridge.config.port if bridge.config.port in _PORTS else ""


def _gpus(facts: Facts) -> dict[str, Gpu]:
    if is_unknown(facts.driver) or is_unknown(facts.driver.gpus):
        return {}
    return {pci_address.full(gpu.bdf): gpu for gpu in facts.driver.gpus if not is_unknown(gpu.bdf)}


def _note(facts: Facts, device: PciDevice, gpu: Gpu | None) -> str:
    if gpu is not None and (memory := _known(gpu.memory_total_bytes)):
        return f"{memory / 2**30:.0f} GiB"
    if device.kind == "nic" and not is_unknown(facts.network):
        ports = () if is_unknown(facts.network.ports) else facts.network.ports
        rates = [_known(port.rate_text) for port in ports if port.bdf == device.bdf]
        wired = () if is_unknown(facts.network.interfaces) else facts.network.interfaces
        speeds = [
            f"{one.name} {speed / 1000:g} Gbit/s"
            for one in wired
            if one.bdf == device.bdf and (speed := _known(one.speed_mbps)) and speed > 0
        ]
        return ", ".join(filter(None, rates or speeds))
    return ""


def _levels(facts: Facts) -> tuple[tuple[str, ...], ...]:
    if is_unknown(facts.p2p) or is_unknown(facts.p2p.levels):
        return ()
    return tuple(
        tuple("X" if cell is None else "?" if isinstance(cell, Unknown) else str(cell) for cell in row)
        for row in facts.p2p.levels
    )


def _known(value: T | Unknown) -> T | None:
    return None if isinstance(value, Unknown) else value


def _reason(family: object, field: str) -> str:
    value = family if isinstance(family, Unknown) else getattr(family, field)
    return value.reason if isinstance(value, Unknown) else ""


def _ranges(cpus: Iterable[int]) -> str:
    """0-3,8 from 0 1 2 3 8."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(f"{a}-{b}" if a != b else f"{a}" for a, b in runs)
