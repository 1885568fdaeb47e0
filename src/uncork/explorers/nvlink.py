"""NVLink and NVSwitch."""

import re
from typing import TYPE_CHECKING

from uncork.explorers import gpus, reading
from uncork.host import Host
from uncork.model.facts.driver import NOT_READ, Gpu, NvLink
from uncork.model.facts.nvlink import Links, NvlinkFacts, Xgmi
from uncork.model.unknown import Unknown

if TYPE_CHECKING:
    from uncork.parsers.nvlink import Link


def explore(host: Host) -> NvlinkFacts:
    """Read each GPU's links: NVML, else the text of `nvidia-smi nvlink -s`; xGMI from amdgpu's sysfs."""
    read = gpus.read(host)
    timed = _timed(host)
    links: tuple[Links, ...] | Unknown
    if read.source == "NVML" and not isinstance(read.gpus, Unknown):
        links, source = tuple(_of(gpu) for gpu in read.gpus if _has_links(gpu)), "NVML"
    else:
        links, source = _printed(host), "nvidia-smi nvlink -s"
        if isinstance(links, Unknown) and not isinstance(read.gpus, Unknown) and not read.gpus:
            links = ()
    return NvlinkFacts(
        gpus=links, source=source, query_times_s=timed, xgmi=_xgmi(host), switches=_switches(host)
    )


def _timed(host: Host) -> tuple[float, ...]:
    kinds = ("nvlink-query", "statements", "unrecognised")
    texts = [text for kind in kinds for text in reading.attached(host, kind)]
    if not texts:
        return ()
    from uncork.parsers import nvlink

    return tuple(seconds for text in texts for seconds in nvlink.query_times_s(text))


def _has_links(gpu: Gpu) -> bool:
    return not isinstance(gpu.nvlinks, Unknown) and bool(gpu.nvlinks)


def _of(gpu: Gpu) -> Links:
    name = "" if isinstance(gpu.name, Unknown) else gpu.name
    subject = f"GPU {gpu.index}" if isinstance(gpu.bdf, Unknown) else gpu.bdf
    return Links(gpu.index, name, subject, () if isinstance(gpu.nvlinks, Unknown) else gpu.nvlinks)


def _printed(host: Host) -> tuple[Links, ...] | Unknown:
    answer = host.run(("nvidia-smi", "nvlink", "-s"))
    if isinstance(answer, Unknown):
        return answer
    from uncork.parsers import nvlink

    found = [gpu for gpu in nvlink.parse(answer.stdout) if gpu.links]
    return tuple(
        Links(gpu.index, gpu.name, f"GPU {max(gpu.index, 0)}", tuple(_link(link) for link in gpu.links))
        for gpu in found
    )


def _link(link: "Link") -> NvLink:
    def count(*words: str) -> int | Unknown:
        found = [value for name, value in link.errors.items() if any(word in name for word in words)]
        return sum(found) if found else NOT_READ

    return NvLink(
        number=link.number,
        active=NOT_READ if link.active is None else link.active,
        speed_gb_s=NOT_READ if link.speed_gb_s is None else link.speed_gb_s,
        remote_bdf=link.remote or NOT_READ,
        replay_errors=count("Replay"),
        recovery_errors=count("Recovery"),
        crc_errors=count("CRC"),
    )


def _xgmi(host: Host) -> tuple[Xgmi, ...]:
    found = []
    for path in host.glob("/sys/class/drm/card[0-9]*/device/xgmi_error"):
        base = path.rpartition("/")[0]
        where = host.link(base)
        bdf = base if isinstance(where, Unknown) else where.rpartition("/")[2]
        hive = reading.text(host, f"{base}/xgmi_hive_info/xgmi_hive_id")
        ras = host.read(f"{base}/ras/xgmi_wafl_err_count")
        errors: int | Unknown = (
            ras if isinstance(ras, Unknown) else sum(map(int, re.findall(r"ue:\s*(\d+)", ras)))
        )
        found.append(Xgmi(bdf, reading.integer(host, path), hive, errors))
    return tuple(found)


def _switches(host: Host) -> int | Unknown:
    """NVSwitch functions: bridges of class 0680 by NVIDIA."""
    names = host.list("/sys/bus/pci/devices")
    if isinstance(names, Unknown):
        return names
    return sum(
        reading.integer(host, f"/sys/bus/pci/devices/{name}/vendor") == 0x10DE
        for name in names
        if reading.text(host, f"/sys/bus/pci/devices/{name}/class") == "0x068000"
    )
