"""NCCL topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE)."""

from typing import Any
from xml.etree import ElementTree

import msgspec

LIMIT_BYTES = 8 << 20


class TopoDevice(msgspec.Struct, frozen=True):
    """A GPU or a network device: its PCI address ("" where it has no PCI parent), and the NUMA node as written."""

    bdf: str
    numa: str


class Topology(msgspec.Struct, frozen=True):
    """Counts of CPUs and PCI nodes, the GPUs and the NICs. `broken` says where the text ended early."""

    cpus: int = 0
    pci: int = 0
    gpus: tuple[TopoDevice, ...] = ()
    nics: tuple[TopoDevice, ...] = ()
    broken: str = ""


def parse(text: str) -> Topology:
    """Read the document; a cut one gives what it holds, one that declares entities is refused."""
    if "<!ENTITY" in text:
        return Topology(broken="the XML declares entities and was not read")
    parser: Any = ElementTree.XMLPullParser(events=("start",))
    broken = ""
    try:
        parser.feed(text[max(0, text.find("<system")) :][:LIMIT_BYTES])
        parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        broken = str(error)
    root: Any = None
    try:
        for _, element in parser.read_events():
            root = element
            break
    except (ElementTree.ParseError, ValueError) as error:
        broken = broken or str(error)
    return _read(root, broken) if root is not None else Topology(broken=broken)


def _read(root: Any, broken: str) -> Topology:
    gpus, nics = [], []
    cpus = pci = 0
    waiting = [(root, "", "")]
    while waiting:
        here, bdf, numa = waiting.pop()
        if here.tag == "cpu":
            cpus, numa = cpus + 1, here.get("numaid") or ""
        elif here.tag == "pci":
            pci, bdf = pci + 1, (here.get("busid") or "").lower()
            gpus += [TopoDevice(bdf, numa) for _ in here.findall("gpu")]
            # A cloud's own file names the class only; one that NCCL wrote has the device below it.
            kind = (here.get("class") or "")[:4]
            if here.find("nic") is None:
                if kind == "0x03" and here.find("gpu") is None:
                    gpus.append(TopoDevice(bdf, numa))
                if kind == "0x02":
                    nics.append(TopoDevice(bdf, numa))
        elif here.tag == "net":
            nics.append(TopoDevice(bdf, numa))
        waiting += [(child, bdf, numa) for child in reversed(here)]
    return Topology(cpus, pci, tuple(gpus), tuple(nics), broken)
