"""Errors that PCIe links and ports report."""

from collections.abc import Iterator

from uncork.checks import (
    FIRMWARE,
    NONE,
    P0,
    P1,
    P2,
    Verdict,
    check,
    fails,
    not_applicable,
    passes,
    unknown,
)
from uncork.checks.gpus import each, gpus, lines, pci_gpus, subject_of, whole_log
from uncork.checks.hosts import known, seen
from uncork.checks.pcie.links import endpoints, has_link, subject
from uncork.model.facts import Facts
from uncork.model.facts.driver import Gpu
from uncork.model.facts.pcie import PciDevice
from uncork.model.unknown import is_unknown


@check("pcie.aer-fatal", P0, FIRMWARE)
def aer_fatal(facts: Facts) -> Iterator[Verdict]:
    """No uncorrectable PCIe error.

    Effect: a fault of the link or the device: transactions were lost
    Sure: high
    Fix: reseat, change riser or slot; unsupported requests and ACS violations name a configuration instead
    Undo: nothing to undo
    Wrong when: the counters are older than the repair
    Source: PCI Express Base Specification, Advanced Error Reporting; Linux Documentation/PCI/pcieaer-howto.rst
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    if log.get("aer-uncorrected"):
        yield fails("uncorrectable errors in the kernel log", evidence=lines("dmesg", log["aer-uncorrected"]))
    refused = next((line for line in log.get("osc", ()) if "AER" in line and "not support" in line), "")

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if is_unknown(device.aer_fatal):
            if refused:
                yield unknown(
                    "the firmware keeps AER to itself, so an empty log proves nothing",
                    device.bdf,
                    evidence=seen("dmesg", refused),
                )
            elif device.aer_fatal.absent and not has_link(device):
                return
            else:
                yield unknown(device.aer_fatal.reason, device.bdf)
            return
        nonfatal = 0 if is_unknown(device.aer_nonfatal) else device.aer_nonfatal
        if device.aer_fatal or nonfatal:
            words = f"{device.aer_fatal} fatal, {nonfatal} non-fatal errors since boot"
            yield fails(words, device.bdf, evidence=seen("aer_dev_fatal", words))
        else:
            yield passes("no uncorrectable error", device.bdf)

    yield from each((d for d in endpoints(facts) if d.kind != "fragment"), subject, judge)


@check("pcie.aer-correctable", P1, FIRMWARE)
def aer_correctable(facts: Facts) -> Iterator[Verdict]:
    """Links do not correct errors all the time.

    Effect: replays cost bandwidth, and come before a link that drops (riser, retimer, cable, slot)
    Sure: high
    Fix: reseat, change the riser; a lower generation in the BIOS as a stop-gap; never mask the errors
    Undo: nothing to undo
    Wrong when: a handful came at boot
    Source: PCI Express Base Specification, Advanced Error Reporting; DCGM diagnostics
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    found = log.get("aer-corrected", ())
    if len(found) >= 10:
        yield fails("the kernel log is full of corrected errors", evidence=lines("dmesg", found))

    def judge(device: PciDevice) -> Iterator[Verdict]:
        if is_unknown(device.aer_correctable) and not has_link(device):
            return
        count = known(device.aer_correctable)
        # A hundred since boot is far from the one a minute that shows as lost bandwidth, and far from a few at boot.
        if count >= 100:
            yield fails(
                f"{count} corrected errors since boot",
                device.bdf,
                evidence=seen("aer_dev_correctable", count),
            )
        else:
            yield passes(f"{count} corrected errors since boot", device.bdf)

    yield from each((d for d in endpoints(facts) if d.kind != "fragment"), subject, judge)


@check("pcie.replay-counter", P1, NONE)
def replays(facts: Facts) -> Iterator[Verdict]:
    """The GPU's own count of replayed packets is low.

    Effect: as corrected errors
    Sure: high
    Fix: reseat, change the riser
    Undo: nothing to undo
    Wrong when: the driver has been loaded for months
    Source: DCGM diagnostics (more than 80 fails); NVML API reference, PCIe replay counter
    """

    def judge(gpu: Gpu) -> Iterator[Verdict]:
        count = known(gpu.replays)
        if count > 80:
            yield fails(
                f"{count} replays since the driver was loaded",
                subject_of(gpu),
                evidence=seen("replay counter", count),
            )
        else:
            yield passes(f"{count} replays", subject_of(gpu))

    yield from each(gpus(facts), subject_of, judge)


@check("pcie.completion-timeout", P2, NONE)
def completion_timeout(facts: Facts) -> Iterator[Verdict]:
    """No completion timed out.

    Effect: stability
    Sure: low
    Fix: none: find why the completer did not answer
    Undo: nothing to undo
    Wrong when: the device was reset meanwhile
    Source: PCI Express Base Specification, uncorrectable error status bit 14
    """

    def judge(device: PciDevice) -> Iterator[Verdict]:
        status = known(device.config).aer_uncorrectable
        if status is None:
            return
        if known(status) & 1 << 14:
            yield fails("a completion timed out", device.bdf, evidence=seen("UESta", "CmpltTO+"))
        else:
            yield passes("no completion timed out", device.bdf)

    yield from each(pci_gpus(facts), subject, judge)


@check("pcie.dpc-hotplug", P0, FIRMWARE)
def dpc(facts: Facts) -> Iterator[Verdict]:
    """No port contained an error or lost its link.

    Effect: the device disappears
    Sure: high
    Fix: reseat, change riser, cable or slot
    Undo: nothing to undo
    Wrong when: somebody pulled the card
    Source: PCI Express Base Specification, Downstream Port Containment; Linux pciehp messages
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    found = [line for line in log.get("dpc", ()) if "containment event" in line] + list(
        log.get("link-down", ())
    )
    found = [line for line in found if "pcie" in line.lower()]
    above = set()
    if not is_unknown(facts.pcie.devices):
        for device in facts.pcie.devices:
            if device.kind == "gpu" and not is_unknown(device.path):
                above |= set(device.path)
        for device in facts.pcie.devices:
            config = device.config
            if device.bdf in above and not is_unknown(config) and config.dpc_triggered is True:
                found.append(f"{device.bdf}: DPC status says triggered")
    if found:
        yield fails("a port dropped its link", evidence=lines("dmesg", found))
    elif is_unknown(facts.driver.log):
        yield unknown(facts.driver.log.reason)
    elif above:
        whole_log(facts)
        yield passes("no port dropped its link")


@check("pcie.slot-power", P0, FIRMWARE)
def slot_power(facts: Facts) -> Iterator[Verdict]:
    """No warning about power of a slot or its cables.

    Effect: throttling or a card that disappears
    Sure: medium
    Fix: connect the power cables; another supply
    Undo: nothing to undo
    Wrong when: the line is older than the repair
    Source: PCI Express Base Specification, Slot Status power fault; NVRM messages
    """
    log = {} if is_unknown(facts.driver.log) else facts.driver.log
    if log.get("power-cable"):
        yield fails("the driver misses power", evidence=lines("dmesg", log["power-cable"]))
        return
    faulty = []
    if not is_unknown(facts.pcie.devices):
        faulty = [
            d.bdf
            for d in facts.pcie.devices
            if not is_unknown(d.config) and d.config.slot_power_fault is True
        ]
    if faulty:
        yield fails(f"power fault at {', '.join(faulty)}", evidence=seen("SltSta", "PwrFlt+"))
    elif is_unknown(facts.driver.log):
        yield unknown(facts.driver.log.reason)
    elif not is_unknown(facts.driver.gpus) and not facts.driver.gpus:
        yield not_applicable("no GPU")
    else:
        whole_log(facts)
        yield passes("no power warning")
