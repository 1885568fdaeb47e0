"""PCI functions from lspci's text: the same structs as from sysfs, with Unknown for what was not printed."""

import re

import msgspec

from uncork.explorers import pci_config, pci_ids, reading
from uncork.host import Host
from uncork.model.facts.pcie import Bar, Config, PciDevice, Rebar
from uncork.model.unknown import Unknown
from uncork.parsers import lspci, lspci_tree, nccl_topo

NOT_PRINTED = Unknown("lspci's text does not show it: attach `sudo lspci -vvv`")
SYSFS_ONLY = Unknown("only the machine's sysfs tells it, no lspci")
_PORTS = {
    "Endpoint": "endpoint",
    "Legacy Endpoint": "legacy",
    "Root Port": "root",
    "Upstream Port": "upstream",
    "Downstream Port": "downstream",
    "Root Complex Integrated Endpoint": "integrated",
}
_ACS_BITS = {
    "SrcValid": 0x01,
    "TransBlk": 0x02,
    "ReqRedir": 0x04,
    "CmpltRedir": 0x08,
    "UpstreamFwd": 0x10,
    "EgressCtrl": 0x20,
    "DirectTrans": 0x40,
}
_CLASSES = {
    "VGA compatible controller": 0x030000,
    "3D controller": 0x030200,
    "Display controller": 0x038000,
    "Processing accelerators": 0x120000,
    "PCI bridge": 0x060400,
    "Bridge": 0x068000,
    "Ethernet controller": 0x020000,
    "Infiniband controller": 0x020700,
    "Non-Volatile memory controller": 0x010802,
}


def devices(host: Host) -> tuple[tuple[PciDevice, ...] | Unknown, bool]:
    """The functions that checks look at, and whether the text tells which bridge is above which."""
    answer, tree = host.run(("lspci", "-vvv")), host.run(("lspci", "-t"))
    nodes = () if isinstance(tree, Unknown) else lspci_tree.parse(tree.stdout).nodes
    if isinstance(answer, Unknown):
        drawn = _drawn(nodes) or _of_topology(host)
        return (drawn, bool(nodes)) if drawn else (answer, False)
    listed = lspci.parse(answer.stdout)
    up = lspci.parents(listed) | {node.bdf: node.parent for node in nodes if node.parent}
    found = []
    for device in listed:
        kind = _kind(device)
        fragment = not device.bdf
        if kind == "other" and not fragment:
            continue
        if kind == "gpu" and not fragment and not device.bdf.endswith(".0"):
            continue
        path = tuple(reversed(lspci.path(device.bdf, up))) if up else NOT_PRINTED
        found.append(_device(device, "fragment" if fragment else kind, path))
    return tuple(found), bool(up)


_GPU_NAME = re.compile(r"NVIDIA Corporation (?!.*(?:Audio|USB|UCSI|NVSwitch|Type-C))|\[AMD/ATI\] (?!.*Audio)")
_CHIPSET_NAME = re.compile(r"Chipset|\bPCH\b|Promontory|Series .*SATA|Sunrise Point|Cannon|Alder Lake-S PCH")


def _drawn(nodes: tuple[lspci_tree.Node, ...]) -> tuple[PciDevice, ...]:
    """GPUs and the bridges above them from a drawing alone; only who stands above whom is known.

    Bridges have no names in a drawing. One that also leads to the chipset's own disks or USB is the chipset's.
    """
    up = {node.bdf: node.parent for node in nodes if node.parent}
    of_chipset = {
        step for node in nodes if _CHIPSET_NAME.search(node.name) for step in lspci.path(node.bdf, up)
    }
    gpus = [node for node in nodes if _GPU_NAME.search(node.name) and node.bdf.endswith(".0")]
    paths = {node.bdf: tuple(reversed(lspci.path(node.bdf, up))) for node in gpus}
    bridges = dict.fromkeys(step for path in paths.values() for step in path)
    drawn = [(bdf, "bridge", "chipset" if bdf in of_chipset else "") for bdf in bridges]
    drawn += [(node.bdf, "gpu", node.name) for node in gpus]
    return tuple(_named(bdf, kind, name, paths.get(bdf, NOT_PRINTED)) for bdf, kind, name in drawn)


def _named(bdf: str, kind: str, name: str, path: tuple[str, ...] | Unknown) -> PciDevice:
    device = _device(lspci.Device(bdf=bdf, name=name), kind, path)
    vendor = pci_ids.NVIDIA if "NVIDIA" in name else pci_ids.AMD if "AMD" in name else NOT_PRINTED
    return msgspec.structs.replace(device, vendor=vendor)


def _of_topology(host: Host) -> tuple[PciDevice, ...]:
    """GPUs and network devices of an attached NCCL topology: addresses and nodes.

    Links and bridges of it are left out: clouds write such files by hand, with bridges that do not exist.
    """
    found = []
    for text in reading.attached(host, "nccl-topo"):
        topology = nccl_topo.parse(text)
        for kind, devices in (("gpu", topology.gpus), ("nic", topology.nics)):
            for one in devices:
                device = _device(lspci.Device(bdf=one.bdf), kind, NOT_PRINTED)
                node = int(one.numa) if one.numa.isdecimal() else NOT_PRINTED
                found.append(msgspec.structs.replace(device, numa_node=node))
    return tuple(found)


def _number(text: str) -> int | Unknown:
    return int(text, 16) if text else NOT_PRINTED


def _class_code(device: lspci.Device) -> int | Unknown:
    if device.class_code:
        return int(device.class_code, 16) << 8
    return _CLASSES.get(device.class_name, NOT_PRINTED)


def _kind(device: lspci.Device) -> str:
    code, vendor, number = _class_code(device), _number(device.vendor), _number(device.device)
    if isinstance(code, Unknown):
        return "other"
    if isinstance(vendor, Unknown):
        vendor = 0
    if vendor == pci_ids.AMD_HOST and code >> 16 in (0x03, 0x12):
        vendor = pci_ids.AMD  # "Advanced Micro Devices, Inc. [AMD/ATI]" without its number
    return pci_ids.kind(code, vendor, 0 if isinstance(number, Unknown) else number, device.bdf)


def _device(device: lspci.Device, kind: str, path: tuple[str, ...] | Unknown) -> PciDevice:
    sta, cap = device.link_sta or lspci.Link(), device.link_cap or lspci.Link()
    return PciDevice(
        bdf=device.bdf,
        kind=kind,
        vendor=_number(device.vendor),
        device=_number(device.device),
        class_code=_class_code(device),
        name=device.name,
        driver=device.driver or ("" if device.modules else NOT_PRINTED),
        path=path,
        off_bus="(rev ff)" in device.name or device.revision == "ff",
        numa_node=NOT_PRINTED if device.numa_node is None else device.numa_node,
        speed_gt_s=NOT_PRINTED if sta.speed_gts is None else sta.speed_gts,
        max_speed_gt_s=NOT_PRINTED if cap.speed_gts is None else cap.speed_gts,
        width=sta.width if sta.width else NOT_PRINTED,
        max_width=cap.width if cap.width else NOT_PRINTED,
        config=pci_config.parse(device.config) if len(device.config) > 64 else _config(device),
        bars=tuple(_bars(device)) if device.bars else NOT_PRINTED,
        aer_fatal=SYSFS_ONLY,
        aer_nonfatal=SYSFS_ONLY,
        aer_correctable=SYSFS_ONLY,
        iommu_type=SYSFS_ONLY,
        power_control=SYSFS_ONLY,
        runtime_status=SYSFS_ONLY,
        aspm_link=SYSFS_ONLY,
        boot_display=SYSFS_ONLY,
        virtual_functions=SYSFS_ONLY,
    )


def _bars(device: lspci.Device) -> list[Bar]:
    """Regions; `lspci -v` prints no numbers, but prints them in order, a 64-bit one taking two."""
    found, number = [], 0
    for bar in device.bars:
        at = number if bar.index is None else bar.index
        if bar.size_bytes:
            found.append(Bar(at, bar.size_bytes, bool(bar.address) and not bar.disabled))
        number = at + (2 if bar.bits == 64 else 1)
    return found


def _config(device: lspci.Device) -> Config | Unknown:
    if device.access_denied and not device.acs_ctl:
        return Unknown("lspci was not run as root: it shows no capabilities")
    sta, cap = device.link_sta or lspci.Link(), device.link_cap or lspci.Link()
    complete = bool(device.capabilities) and bool(device.port)

    def flag(flags: dict[str, bool], name: str) -> bool | Unknown:
        return flags.get(name, NOT_PRINTED)

    def mask(flags: dict[str, bool]) -> int | Unknown | None:
        if flags:
            return sum(bit for name, bit in _ACS_BITS.items() if flags.get(name))
        return None if complete else NOT_PRINTED

    ats = device.ats.get("Enable")
    return Config(
        port=_PORTS.get(device.port, "other") if device.port else NOT_PRINTED,
        payload_bytes=NOT_PRINTED if device.payload_bytes is None else device.payload_bytes,
        payload_supported_bytes=NOT_PRINTED if device.payload_cap_bytes is None else device.payload_cap_bytes,
        read_request_bytes=NOT_PRINTED if device.read_request_bytes is None else device.read_request_bytes,
        extended_tag=flag(device.dev_ctl, "ExtTag"),
        extended_tag_supported=NOT_PRINTED,
        relaxed_ordering=flag(device.dev_ctl, "RlxdOrd"),
        no_snoop=flag(device.dev_ctl, "NoSnoop"),
        transactions_pending=flag(device.dev_sta, "TransPend"),
        link_speed_gt_s=NOT_PRINTED if sta.speed_gts is None else sta.speed_gts,
        link_width=NOT_PRINTED if sta.width is None else sta.width,
        max_link_speed_gt_s=NOT_PRINTED if cap.speed_gts is None else cap.speed_gts,
        max_link_width=NOT_PRINTED if cap.width is None else cap.width,
        target_speed_gt_s=NOT_PRINTED if device.target_speed_gts is None else device.target_speed_gts,
        aspm=_aspm(sta.aspm),
        slot_power_fault=NOT_PRINTED,
        completion_timeout_code=NOT_PRINTED,
        completion_timeout_off=NOT_PRINTED,
        atomic_routing=flag(device.dev_cap2, "Routing"),
        atomic_completer_64=flag(device.dev_cap2, "64bit"),
        atomic_requester=flag(device.dev_ctl2, "ReqEn"),
        atomic_egress_blocked=flag(device.dev_ctl2, "EgressBlck"),
        ten_bit_tag_requester_supported=flag(device.dev_cap2, "10BitTagReq"),
        ten_bit_tag_completer=flag(device.dev_cap2, "10BitTagComp"),
        ten_bit_tag=flag(device.dev_ctl2, "10BitTagReq"),
        acs_supported=mask(device.acs_cap),
        acs_control=mask(device.acs_ctl),
        ats=(None if complete else NOT_PRINTED) if ats is None else ats,
        dpc_triggered=NOT_PRINTED,
        aer_uncorrectable=_set(device.uncorrectable),
        aer_correctable=_set(device.correctable),
        sriov_vfs=NOT_PRINTED,
        rebar=tuple(Rebar(one.index, one.current_bytes, one.supported_bytes) for one in device.rebar),
    )


def _aspm(text: str) -> str | Unknown:
    if not text:
        return NOT_PRINTED
    return "off" if text.startswith("Disabled") else text.removesuffix(" Enabled").replace(" ", "+")


# Bit of the AER status register by lspci's name (PCI Express Base Specification, 7.8.4).
_AER_BITS = {
    "DLP": 4, "SDES": 5, "TLP": 12, "FCP": 13, "CmpltTO": 14, "CmpltAbrt": 15, "UnxCmplt": 16, "RxOF": 17,
    "MalfTLP": 18, "ECRC": 19, "UnsupReq": 20, "ACSViol": 21,
    "RxErr": 0, "BadTLP": 6, "BadDLLP": 7, "Rollover": 8, "Timeout": 12, "AdvNonFatalErr": 13,
}  # fmt: skip


def _set(flags: dict[str, bool]) -> int | Unknown:
    """The status word that lspci's flags stand for."""
    return (
        sum(1 << _AER_BITS[name] for name, on in flags.items() if on and name in _AER_BITS)
        if flags
        else NOT_PRINTED
    )
