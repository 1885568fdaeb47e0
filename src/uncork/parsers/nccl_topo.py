"""NCCL topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE)."""

from typing import Any
from xml.etree import ElementTree

import msgspec

from uncork.parsers.numbers import integer

LIMIT_BYTES = 8 << 20


class TopoGpu(msgspec.Struct, frozen=True):
    """A GPU: its PCI address, and its NVLinks as (target address, count)."""

    bdf: str
    dev: int | None
    numa: str
    nvlinks: tuple[tuple[str, int], ...] = ()
    link_speed: str = ""
    link_width: str = ""
    gdr: bool | None = None


class TopoNic(msgspec.Struct, frozen=True):
    """A network device and the PCI address it sits on ("" where it has no PCI parent)."""

    name: str
    bdf: str
    speed_mb_s: int | None = None
    gdr: bool | None = None


class Topology(msgspec.Struct, frozen=True):
    """Counts of CPUs and PCI nodes, the GPUs and the NICs. `broken` says where the text ended early."""

    cpus: int = 0
    pci: int = 0
    gpus: tuple[TopoGpu, ...] = ()
    nics: tuple[TopoNic, ...] = ()
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
            link = (here.get("link_speed") or "", here.get("link_width") or "")
            gpus += [_gpu(gpu, bdf, numa, link) for gpu in here.findall("gpu")]
            if (
                here.find("gpu") is None
                and here.find("nic") is None
                and (here.get("class") or "").startswith("0x03")
            ):
                gpus.append(TopoGpu(bdf, None, numa, (), *link))
            if here.find("nic") is None and (here.get("class") or "").startswith("0x02"):
                nics.append(TopoNic("", bdf))
        elif here.tag == "net":
            nics.append(
                TopoNic(here.get("name") or "", bdf, integer(here.get("speed")), _flag(here.get("gdr")))
            )
        waiting += [(child, bdf, numa) for child in reversed(here)]
    return Topology(cpus, pci, tuple(gpus), tuple(nics), broken)


def _gpu(gpu: Any, bdf: str, numa: str, link: tuple[str, str]) -> TopoGpu:
    links = tuple((one.get("target") or "", integer(one.get("count")) or 0) for one in gpu.findall("nvlink"))
    return TopoGpu(bdf, integer(gpu.get("dev")), numa, links, *link, _flag(gpu.get("gdr")))


def _flag(text: str | None) -> bool | None:
    return {"1": True, "0": False}.get(text or "")
