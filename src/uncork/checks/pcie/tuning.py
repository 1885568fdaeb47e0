"""Request and payload sizes, tags and ordering of PCIe functions."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    INFO,
    NONE,
    P1,
    P2,
    REBOOT,
    RUNTIME,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
)
from uncork.checks.gpus import each, pci_gpus
from uncork.checks.hosts import known, seen, spread
from uncork.checks.pcie.links import guest, subject
from uncork.model.facts import Facts
from uncork.model.facts.pcie import PciDevice
from uncork.model.findings import Change
from uncork.model.unknown import UnknownValue, is_unknown

FAST_MBPS = 100_000


# Root ports that break relaxed ordering: Haswell and Broadwell Xeons. Source: Linux drivers/pci/quirks.c.
_NO_RELAXED = {*range(0x2F01, 0x2F0F), *range(0x6F01, 0x6F0F)}


def _read_request_veto(facts: Facts, device: PciDevice) -> str:
    """Why MaxReadReq must not be raised here, or an empty text.

    A completer may answer with packets as large as its own MaxPayload, so a request larger than the requester's
    payload is legal only where every port on the way has the same (PCI Express Base Specification, 2.2.7 and
    Linux pcie_bus_config).
    """
    if is_unknown(facts.pcie.cmdline):
        return "the kernel command line is not known"
    if "pcie_bus_perf" in facts.pcie.cmdline:
        return "pci=pcie_bus_perf sizes read requests by payload"
    if is_unknown(device.path):
        return "the ports above it are not known"
    ports = [d for d in facts.pcie.devices if d.bdf in device.path]
    sizes = {
        d.config.payload_bytes
        for d in (*ports, device)
        if not is_unknown(d.config) and not is_unknown(d.config.payload_bytes)
    }
    if len(ports) < len(device.path) or len(sizes) != 1:
        return "MaxPayload differs along the path, or is not known there"
    lockdown = facts.pcie.lockdown
    if not is_unknown(lockdown) and lockdown != "none":
        return f"the kernel is locked down ({lockdown})"
    return ""


def _read_request(facts: Facts, device: PciDevice, least: int, *, important: bool) -> Iterator[Verdict]:
    now = known(known(device.config).read_request_bytes)
    if now >= least:
        yield passes(f"{now} bytes", device.bdf)
        return
    veto = _read_request_veto(facts, device)
    change = None if veto else Change("pci_mrrs", device.bdf, str(least), before=str(now))
    yield fails(
        f"MaxReadReq is {now} bytes, {least} is asked for" + (f"; not changed: {veto}" if veto else ""),
        device.bdf,
        priority=P1 if important else P2,
        change=change,
        evidence=seen("DevCtl", f"MaxReadReq {now} bytes"),
    )


@check("pcie.max-read-request", P2, RUNTIME)
def read_request_gpu(facts: Facts) -> Iterator[Verdict]:
    """GPUs may ask for at least 512 bytes at once, all alike.

    Effect: small requests cost bandwidth of reads over a long path; peer traffic is mostly writes and does not
        notice
    Sure: low
    Fix: write MaxReadReq of the GPU's Device Control register; 4096 only as a measured experiment
    Undo: write the former value; a reset or reboot brings it back anyway
    Wrong when: bridges and switch ports, whose 128 is read-only and means nothing
    Folklore: partly: popular, and 128, 512 and 4096 were equal on RTX PRO 6000 with EPYC
    Source: AMD ROCm cluster networking guide; rtx6kpro measurements; PCI Express Base Specification
    """
    if guest(facts):
        yield not_applicable("a virtual machine: the register may not reach the device")
        return
    yield from each(pci_gpus(facts), subject, lambda d: _read_request(facts, d, 512, important=False))


@check("pcie.max-read-request-nic", P1, RUNTIME)
def read_request_nic(facts: Facts) -> Iterator[Verdict]:
    """NICs of 100 Gb/s and more may ask for 4096 bytes at once.

    Effect: vendors name it as needed for line rate on reads
    Sure: medium
    Fix: write MaxReadReq of the NIC's Device Control register, or set it in its firmware
    Undo: write the former value; a driver reset brings it back anyway
    Wrong when: the firmware manages it
    Source: NVIDIA networking, PCIe configuration for maximum performance; mlnx_tune; AMD ROCm networking guide
    """
    fast = _fast_nics(facts)
    if not fast:
        yield not_applicable("no NIC of 100 Gb/s")
        return
    devices = [d for d in facts.pcie.devices if d.bdf in fast]
    used = bool(spread(facts))
    yield from each(devices, subject, lambda d: _read_request(facts, d, 4096, important=used))


def _fast_nics(facts: Facts) -> set[str]:
    """NICs that are fast by what their link says, or by a PCIe link that only such cards have."""
    found: set[str] = set()
    rates_known = False
    if not is_unknown(facts.network):
        if not is_unknown(facts.network.interfaces):
            rates_known = True
            found |= {
                i.bdf
                for i in facts.network.interfaces
                if not is_unknown(i.speed_mbps) and i.speed_mbps >= FAST_MBPS
            }
        if not is_unknown(facts.network.ports):
            rates_known = True
            found |= {
                p.bdf for p in facts.network.ports if not is_unknown(p.rate_gbps) and p.rate_gbps >= 100
            }
    if not rates_known and any(d.kind == "nic" for d in facts.pcie.devices):
        raise UnknownValue("the speed of the NICs is not told")
    return found


@check("pcie.max-read-request-nvme", INFO, RUNTIME)
def read_request_nvme(facts: Facts) -> Iterator[Verdict]:
    """NVMe drives may ask for at least 512 bytes at once.

    Effect: no gain above 512 is shown
    Sure: low
    Fix: none planned
    Undo: nothing to undo
    Wrong when: always worth a doubt
    Folklore: yes: no evidence
    Source: own reasoning
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        now = known(known(device.config).read_request_bytes)
        if now < 512:
            yield fails(
                f"MaxReadReq is {now} bytes", device.bdf, change_class=NONE, evidence=seen("DevCtl", now)
            )
        else:
            yield passes(f"{now} bytes", device.bdf)

    yield from each((d for d in facts.pcie.devices if d.kind == "nvme"), subject, judge)


@check("pcie.max-payload", P1, REBOOT)
def payload(facts: Facts) -> Iterator[Verdict]:
    """MaxPayload is one size from each GPU up to its root.

    Effect: a receiver with less than the sender reports malformed packets; 128 bytes cost 8 % against 256
        (arithmetic, 24 bytes of overhead a packet)
    Sure: medium
    Fix: BIOS, or pci=pcie_bus_safe at boot; never written while the machine runs
    Undo: the former command line
    Wrong when: pci=pcie_bus_perf, which lets sizes differ and bounds read requests instead
    Source: Linux Documentation/admin-guide/kernel-parameters.txt, pci=; AMD ROCm single-node guide
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        own = known(known(device.config).payload_bytes)
        ports = {d.bdf: d for d in facts.pcie.devices if d.bdf in known(device.path)}
        sizes = {bdf: known(known(d.config).payload_bytes) for bdf, d in ports.items()}
        able = [known(known(d.config).payload_supported_bytes) for d in (*ports.values(), device)]
        shown = seen(
            "DevCtl", ", ".join(f"{bdf} {size}" for bdf, size in sizes.items()) + f", {device.bdf} {own}"
        )
        perf = not is_unknown(facts.pcie.cmdline) and "pcie_bus_perf" in facts.pcie.cmdline
        if len({own, *sizes.values()}) > 1 and not perf:
            yield fails(
                f"MaxPayload differs along the path: {sorted({own, *sizes.values()})}",
                device.bdf,
                evidence=shown,
            )
        elif own < min(256, *able):
            yield fails(f"MaxPayload is {own} of {min(able)} bytes", device.bdf, priority=P2, evidence=shown)
        else:
            yield passes(f"{own} bytes throughout", device.bdf)

    if guest(facts):
        yield not_applicable("a virtual machine: writes do not reach the hardware")
    else:
        yield from each(pci_gpus(facts), subject, judge)


@check("pcie.extended-tags", P2, FIRMWARE)
def extended_tags(facts: Facts) -> Iterator[Verdict]:
    """GPUs may have 256 reads outstanding, not 32.

    Effect: bandwidth of reads over a path with high latency
    Sure: medium
    Fix: the kernel switches them on by itself; where firmware or a quirk keeps them off, leave it
    Undo: nothing to undo
    Wrong when: the kernel log names a quirk
    Source: PCI Express Base Specification, Device Control; Linux pci_configure_extended_tags
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        config = known(device.config)
        if known(config.extended_tag):
            yield passes("extended tags are on", device.bdf)
        elif known(config.extended_tag_supported):
            yield fails("extended tags are off", device.bdf, evidence=seen("DevCtl", "ExtTag-"))
        else:
            yield passes("the device has no extended tags", device.bdf)

    yield from each(pci_gpus(facts), subject, judge)


@check("pcie.ten-bit-tags", P2, FIRMWARE)
def ten_bit_tags(facts: Facts) -> Iterator[Verdict]:
    """AMD Instinct GPUs may have 768 reads outstanding.

    Effect: matters for reads at Gen5 x16
    Sure: low
    Fix: 10-bit tags in the BIOS; Linux leaves them alone because every peer must take them
    Undo: the former BIOS setting
    Wrong when: some completer on the way, a peer GPU included, cannot take them
    Source: AMD Instinct MI300X system optimization; PCI Express Base Specification, Device Control 2
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        config = known(device.config)
        if known(config.ten_bit_tag) or not known(config.ten_bit_tag_requester_supported):
            yield passes("10-bit tags as the device has them", device.bdf)
        else:
            yield fails("10-bit tags are off", device.bdf, evidence=seen("DevCtl2", "10BitTagReq-"))

    yield from each(pci_gpus(facts, 0x1002), subject, judge)


@check("pcie.relaxed-ordering", P2, RUNTIME)
def relaxed_ordering(facts: Facts) -> Iterator[Verdict]:
    """GPUs and fast NICs may send writes in relaxed order.

    Effect: RDMA between NIC and GPU on EPYC needs it for full write bandwidth; GPUs mostly have it on
    Sure: medium
    Fix: write bit 4 of Device Control, with a data check and a measurement
    Undo: write the former bit
    Wrong when: Haswell and Broadwell root ports, where the kernel keeps it off on purpose; a guest
    Source: AMD ROCm single-node guide; DGX OS 6 user guide; Linux drivers/pci/quirks.c
    """
    if guest(facts):
        yield not_applicable("a virtual machine: the bit may not reach the hardware")
        return

    def judge(device: PciDevice) -> Iterator[Verdict]:
        on = known(known(device.config).relaxed_ordering)
        root = known(device.path)[0] if known(device.path) else ""
        port = next((d for d in facts.pcie.devices if d.bdf == root), None)
        broken = (
            port is not None
            and not is_unknown(port.device)
            and not is_unknown(port.vendor)
            and port.vendor == 0x8086
            and port.device in _NO_RELAXED
        )
        if on:
            yield passes("relaxed ordering is allowed", device.bdf)
        elif broken:
            yield passes("off on purpose: this root port breaks it", device.bdf)
        else:
            change = Change("pci_relaxed_ordering", device.bdf, "1", before="0")
            yield fails(
                "relaxed ordering is off", device.bdf, change=change, evidence=seen("DevCtl", "RlxdOrd-")
            )

    fast = set() if is_unknown(facts.network) or is_unknown(facts.network.interfaces) else _fast_nics(facts)
    yield from each((d for d in facts.pcie.devices if d.kind == "gpu" or d.bdf in fast), subject, judge)


@check("pcie.no-snoop", INFO, NONE)
def no_snoop(facts: Facts) -> Iterator[Verdict]:
    """Whether GPUs may mark transactions as not snooped.

    Effect: none known for serving
    Sure: low
    Fix: none planned: coherency is at stake
    Undo: nothing to undo
    Wrong when: always worth a doubt
    Folklore: yes
    Source: PCI Express Base Specification, Device Control
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        on = known(known(device.config).no_snoop)
        yield passes("no-snoop is " + ("allowed" if on else "off"), device.bdf)

    yield from each(pci_gpus(facts), subject, judge)
